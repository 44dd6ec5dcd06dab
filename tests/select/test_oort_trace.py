"""Oort against a second implementation, device by device in plain Python, on the same stream of feedback."""

import math
import random

import numpy as np
from support import outcomes, snapshot

from eiffel.core.model import generator
from eiffel.select import Candidates, Oort, Tempo

N, K, ROUNDS, SEEDS = 40, 5, 80, 12
EXAMPLES = [10 + 3 * (i % 13) for i in range(N)]
SECONDS = [1.0 + (7 * i % 40) / 5 for i in range(N)]


def loss(device: int, times: int) -> float:
    """What a device reports: its own level, falling as it takes part."""
    return (0.2 + (device * 11 % 17) / 8) / math.sqrt(1 + times)


class Slow:
    """The rule as its authors' code states it, with the repairs that `eiffel.select.oort` names."""

    def __init__(self, rule: Oort, seed: int) -> None:
        self.rule, self.random = rule, random.Random(seed)
        self.reward, self.last, self.past = dict[int, float](), dict[int, int](), list[float]()
        self.percentile = rule.percentile

    def choose(self, round_: int) -> list[int]:
        new = int(K * max(self.rule.explore * self.rule.decay**round_, self.rule.explore_min))
        old = min(K - new, len(self.last))
        new = min(K - old, N - len(self.last))
        old = min(K - new, len(self.last))
        chosen = self.draw(self.exploitable(round_, old), old)
        fresh = {i: EXAMPLES[i] * self.haste(i) for i in range(N) if i not in self.last}
        best = sorted(fresh, key=lambda i: -fresh[i])[: int(self.rule.window * new)]
        return sorted(chosen + self.draw({i: fresh[i] for i in best}, new))

    def haste(self, i: int) -> float:
        if self.percentile >= 100:
            return 1.0
        prefer = sorted(SECONDS)[min(int(N * self.percentile / 100), N - 1)]
        return (prefer / SECONDS[i]) ** self.rule.alpha if SECONDS[i] > prefer else 1.0

    def exploitable(self, round_: int, exploit: int) -> dict[int, float]:
        if not exploit:
            return {}
        levels = sorted(self.reward.values())
        clip, low = levels[min(int(len(levels) * self.rule.clip), len(levels) - 1)], levels[0] * 0.999
        scale = max(levels[-1] - low, 1e-4)
        score = {
            i: ((min(self.reward[i], clip) - low) / scale + math.sqrt(0.1 * math.log(round_) / self.last[i]))
            * self.haste(i)
            for i in self.last
        }
        order = sorted(score, key=lambda i: -score[i])
        edge = score[order[min(exploit, len(order) - 1)]] * self.rule.cut
        kept: list[int] = []
        for i in order:
            if score[i] < edge and len(kept) > 10 * exploit:
                break
            kept.append(i)
        return {i: score[i] for i in kept}

    def draw(self, weight: dict[int, float], k: int) -> list[int]:
        weight, chosen = dict(weight), list[int]()
        for _ in range(k):
            pick = self.random.choices(list(weight), list(weight.values()))[0]
            chosen.append(pick)
            del weight[pick]
        return chosen

    def learn(self, round_: int, chosen: list[int], losses: list[float]) -> None:
        exploited = [i for i in chosen if i in self.last]
        for i, value in zip(chosen, losses, strict=True):
            self.reward[i], self.last[i] = value * EXAMPLES[i], round_
        self.past.append(sum(self.reward[i] for i in exploited) / len(exploited) if exploited else 0.0)
        step, delta, now = self.rule.pacer_step, self.rule.pacer_delta, round_ + 1
        if now >= 2 * step and now % step == 0:
            past = [0.0] * (2 * step) + self.past
            before, latest = sum(past[-2 * step : -step]), sum(past[-step:])
            if abs(latest - before) <= 0.1 * before:
                self.percentile = min(100.0, self.percentile + delta)
            elif abs(latest - before) >= 5 * before:
                self.percentile = max(delta, self.percentile - delta)


def slow_shares(rule: Oort, seed: int) -> np.ndarray:
    slow, times = Slow(rule, seed), [0] * N
    for round_ in range(1, ROUNDS + 1):
        chosen = slow.choose(round_)
        slow.learn(round_, chosen, [loss(i, times[i]) for i in chosen])
        for i in chosen:
            times[i] += 1
    return np.array(times) / ROUNDS


def fast_shares(rule: Oort, seed: int) -> np.ndarray:
    state, times = rule.init(N), np.zeros(N, int)
    task = np.array(SECONDS, np.float32)
    for round_ in range(1, ROUNDS + 1):
        world = snapshot(N, round_=round_, examples=np.array(EXAMPLES, np.int32))
        among = Candidates(world, np.ones(N, bool), task, task, Tempo(1))
        chosen, _ = rule.choose(state, among, K, generator(seed, round_))
        told = [loss(int(i), int(times[i])) for i in chosen]
        out = outcomes(round_, chosen, told, examples=[EXAMPLES[i] for i in chosen])
        state = rule.learn(state, out)
        times[chosen] += 1
    return times / ROUNDS


def test_both_choose_the_same_devices_equally_often() -> None:
    """Mean shares over 12 seeds: they correlate as well as one implementation does with itself on other seeds."""
    rule = Oort(pacer_step=10)
    fast = np.mean([fast_shares(rule, s) for s in range(SEEDS)], axis=0)
    slow = np.mean([slow_shares(rule, s) for s in range(SEEDS)], axis=0)
    again = np.mean([slow_shares(rule, s) for s in range(100, 100 + SEEDS)], axis=0)
    own_noise = abs(slow - again).mean()
    assert fast.sum() == slow.sum() == K
    assert np.corrcoef(fast, slow)[0, 1] > 0.97
    assert abs(fast - slow).mean() < 2 * own_noise
    assert slow.std() > 4 * own_noise  # the shares differ between devices by far more than by chance
