"""The world of real nodes: the same plans, carried out by machines that answer when they can, or do not.

    observe   who is there (one question to every newcomer), who is free, what a task costs each
    run       send the tasks; take answers in until enough count, everybody has answered, or time is up
    score     have every reachable device measure a model on its own test data

Every wait has a budget and is measured by a monotonic clock. A node that has not answered stays BUSY until it
does or its message expires, so that a slow one cannot starve the rounds that follow. Answers that are late,
double or foreign are counted and never mixed in. How messages travel is the business of a `Post`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eiffel.core import validate
from eiffel.core.costs import model_bytes
from eiffel.core.model import Outcomes, Params, Plan, Reason, Scores, Snapshot, Status, generator
from eiffel.worlds.course import Course
from eiffel.worlds.nodes import EXCHANGE_S, Nodes
from eiffel.worlds.post import (
    ACCURACY,
    EVALUATE,
    LOSS,
    PROBE,
    QUERY,
    TRAIN,
    Answer,
    Letter,
    Post,
    Sent,
    Waits,
    first_of,
)

log = logging.getLogger("eiffel")

_EVALUATION = 2  # purpose of the draw of devices that evaluate


class GridWorld:
    """Implements `eiffel.core.loop.World` over a `Post`. size: P. devices: N, or 0 to grow as nodes come.

    task: scalars that every letter carries. evaluators: most devices that measure a model (0: all). why: why
    `observe` returned None. metrics, evaluation: what the last cohort, and the last evaluation, measured, as
    name -> (mean, coverage). strays, stray_bytes: answers of this round that were not counted, by status. stated:
    devices of the last round that stated their joules; the others' are estimates. clock, sleep: for tests.
    """

    def __init__(
        self,
        post: Post,
        size: int,
        *,
        seed: int = 0,
        devices: int = 0,
        waits: Waits | None = None,
        task: Mapping[str, Any] | None = None,
        evaluators: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.nodes, self.waits, self.why = Nodes(devices), waits or Waits(), ""
        self.metrics: dict[str, tuple[float, float]] = {}
        self.evaluation: dict[str, tuple[float, float]] = {}
        self._post, self._size, self._seed, self._task = post, size, seed, dict(task or {})
        self._clock, self._sleep, self._evaluators = clock, sleep, evaluators
        self._began, self._offset, self._round = clock(), 0.0, 0
        self._out: dict[str, Sent] = {}
        self._seen: set[str] = set()
        self._given_up: set[str] = set()
        self._asking: dict[str, Sent] = {}
        self._met: dict[int, tuple[str, Mapping[str, float]]] = {}
        self._mute: set[int] = set()
        self.strays: Counter[str] = Counter()
        self.stray_bytes = 0
        self.stated = 0
        self._first, self._listed = True, False
        self._since: float | None = None
        self._present: Sequence[int] | None = None
        self._seen_as: tuple[Sequence[int], int] | None = None
        self._online = self.nodes.online(())

    @property
    def now(self) -> float:
        """Seconds since the federation began, over all its runs."""
        return self._offset + self._clock() - self._began

    # Who is there.

    def observe(self, round_: int) -> Snapshot | None:
        """The nodes as round `round_` may begin; None when too few came in time, as `why` says."""
        if round_ != self._round:
            self.strays, self.stray_bytes = Counter(), 0
        self._round = round_
        until = self._clock() + self.waits.nodes_s
        while True:
            self.look()
            snapshot = self._snapshot(round_)
            free = int(np.count_nonzero(snapshot.reason == Reason.CHOSEN))
            if self._gathered(free) or self._clock() >= until:
                break
            self._sleep(self.waits.poll_s)
        if self._met:
            self._seat_met(self._post.present())
            self.look()
            snapshot = self._snapshot(round_)
            free = int(np.count_nonzero(snapshot.reason == Reason.CHOSEN))
        self._first = False
        if free < self.waits.least:
            self.why = (
                f"not enough nodes: {free} free of at least {self.waits.least} after {self.waits.nodes_s:g} s "
                f"({len(self._post.present())} reachable)"
            )
            return None
        return snapshot

    def _gathered(self, free: int) -> bool:
        """Whether a round may begin: the first one also waits for a while for all that are wanted."""
        here = int(np.count_nonzero(self._online)) + len(self._met)
        if self._first and (self._asking or here < self.waits.wanted):
            if here >= self.waits.least and self._since is None:
                self._since = self._clock()
            waited = 0.0 if self._since is None else self._clock() - self._since
            if self._asking or waited < self.waits.gather_s:
                return bool(self._listed and not self._asking and free >= self.waits.least)
        return free >= self.waits.least

    def look(self) -> None:
        """Take in what has arrived, ask newcomers who they are, give up on letters that have expired."""
        self._take_strays()
        present = self._post.present()
        # A quarter of a million nodes that did not change since the last look cost one comparison.
        if self._present is None or present != self._present:
            self._ask([node for node in present if self.nodes.row(node) is None])
            self._present = present
        if self._asking:
            self._introduce(present)
        self._online = self.nodes.online(present) if self._moved(present) else self._online
        self._expire()

    def _moved(self, present: Sequence[int]) -> bool:
        """Whether who is reachable, or who holds which row, changed since the last look."""
        before, self._seen_as = self._seen_as, (present, self.nodes.changes)
        return before is None or before != self._seen_as

    def _ask(self, unknown: Sequence[int]) -> None:
        """Ask newcomers who they are, unless the network knows."""
        asked = {sent.letter.node for sent in self._asking.values()} | self._mute
        fresh = sorted(node for node in unknown if node not in asked)
        # A network that knows its nodes lists them all: nobody else will come.
        known: dict[int, tuple[str, Mapping[str, float]]] = {
            node: (key, {}) for node in fresh if (key := self._post.key(node))
        }
        self._seat(known, fresh)
        self._listed = bool(known)
        letters = [Letter(QUERY, -1, n, self._task, self.waits.query_s) for n in fresh if n not in known]
        self._asking |= {sent.id or f"unsent-{sent.letter.node}": sent for sent in self._send(letters, None)}

    def _seat(self, come: Mapping[int, tuple[str, Mapping[str, float]]], present: Sequence[int]) -> None:
        if come:
            self.nodes.meet(come, present)
            self._mute |= {node for node in come if self.nodes.row(node) is None}

    def _introduce(self, present: Sequence[int]) -> None:
        """Seat those who answered, and those who were asked and will not answer, under a key of last resort."""
        now, come = self.now, self._met
        for answer in self._post.collect([i for i, s in self._asking.items() if s.id]):
            sent = self._asking.pop(answer.answers, None)
            if sent is not None and answer.status != Status.LEFT:
                key = answer.key or self._post.fallback(sent.letter.node)
                come[sent.letter.node] = (key, {"exchange_s": now - sent.at, **answer.figures})
        for id_, sent in list(self._asking.items()):
            if not sent.id or now - sent.at > self.waits.query_s:
                del self._asking[id_]
                come[sent.letter.node] = (self._post.fallback(sent.letter.node), {})
        if not (self._first and self._asking):
            self._seat_met(present)

    def _seat_met(self, present: Sequence[int]) -> None:
        """The first ones are seated all together, by their keys: who answered sooner changes nothing."""
        self._met, met = {}, self._met
        self._seat(met, present)

    def _expire(self) -> None:
        """Forget letters whose time has passed, or to nodes that are gone."""
        for id_, sent in list(self._out.items()):
            held = self.nodes.node_of.get(sent.letter.device) == sent.letter.node
            gone = not held or not self._online[sent.letter.device]
            if gone or self.now - sent.at > sent.letter.ttl:
                self._given_up.add(id_)
                del self._out[id_]

    def _snapshot(self, round_: int) -> Snapshot:
        reason = np.where(self._online, np.uint8(Reason.CHOSEN), np.uint8(Reason.OFFLINE))
        busy = [sent.letter.device for sent in self._out.values()]
        reason[[device for device in busy if self._online[device]]] = Reason.BUSY
        return self.nodes.snapshot(round_, self.now, reason, *model_bytes(self._size))

    def _send(self, letters: Sequence[Letter], params: Params | None) -> list[Sent]:
        posted = self._post.send(letters, params)
        return [
            Sent(id_, letter, size, self.now) for letter, (id_, size) in zip(letters, posted, strict=True)
        ]

    # A round.

    def run(self, plan: Plan) -> Outcomes:
        """Carry a plan out, and end in time whatever the nodes do."""
        start, limit = self.now, min(plan.deadline_s, self.waits.round_s)
        course = self.begin(plan, self._send(self.letters(plan), plan.params))
        while not course.over and self.now - start < limit:
            arrived = self._post.collect(list(self._out))
            for answer in sorted(arrived, key=lambda a: self._device(a.answers)):
                self.hear(answer, course)
            if not course.over and not arrived:
                self._sleep(min(self.waits.poll_s, max(0.0, limit - (self.now - start))))
        return self.finish(course)

    def letters(self, plan: Plan) -> list[Letter]:
        """What each chosen device is told, row after row of the plan."""
        limit = min(plan.deadline_s, self.waits.round_s)
        # Seconds a device may work: the deadline, less what it takes to send the model there and back.
        exchange = self.nodes.figure("exchange_s", EXCHANGE_S)[plan.chosen]
        work = np.maximum(plan.deadline_s - exchange, plan.deadline_s / 10)
        ttl = limit * (self.waits.hold if np.isfinite(plan.deadline_s) else 1.0)
        return [
            Letter(
                PROBE if plan.probing else TRAIN,
                int(d),
                self.nodes.node_of[int(d)],
                {**self._task, **orders(plan, k, self._seed), "limit_s": float(work[k])},
                ttl,
                plan.round,
                None if plan.shift is None else plan.shift[k],
            )
            for k, d in enumerate(plan.chosen)
        ]

    def begin(self, plan: Plan, sent: Sequence[Sent]) -> Course:
        """A round whose letters are on their way."""
        self._round = plan.round
        self._out |= {s.id: s for s in sent if s.id}
        return Course(plan, sent, self._size, self.now)

    def finish(self, course: Course) -> Outcomes:
        """Close a round: who has not answered by now is not waited for."""
        self.metrics, self.stated = validate.weighted(course.metrics), course.stated
        return course.close(self.now, self.nodes)

    def _device(self, id_: str) -> int:
        sent = self._out.get(id_)
        return -1 if sent is None else sent.letter.device

    def hear(self, answer: Answer, course: Course) -> None:
        """One answer: into the round, or among the strays."""
        asked = {s.id: s.letter.node for s in course.sent}
        earlier = (self._out.keys() | self._given_up) - asked.keys()
        # The network answers for a node that is gone, as sender 0.
        sender = asked.get(answer.answers) if answer.sender == 0 else answer.sender
        verdict = validate.identity(answer.answers, sender, asked, earlier, self._seen)
        if verdict != Status.DELIVERED:
            self._stray(answer, verdict)
            return
        self._seen.add(answer.answers)
        sent = self._out.pop(answer.answers)
        row = sent.letter.device
        if answer.status == Status.DELIVERED:
            self.nodes.timed(row, self.now - sent.at, int(answer.figures.get("steps", 0)), answer.figures)
        course.take(row, answer, self.now)

    def _stray(self, answer: Answer, verdict: Status) -> None:
        self.strays[verdict.name.lower()] += 1
        self.stray_bytes += answer.bytes
        sent = self._out.get(answer.answers)
        if verdict == Status.STALE:  # its node is free again; a foreign answer says nothing of the one asked
            self._out.pop(answer.answers, None)
            self._seen.add(answer.answers)
        where = f"device {sent.letter.device}, round {sent.letter.round}" if sent else f"node {answer.sender}"
        log.info("an answer was not counted: %s (%s)", verdict.text, where)

    def _take_strays(self) -> None:
        """Between rounds: late answers free their nodes."""
        for answer in self._post.collect(list(self._out)):
            verdict = Status.DUPLICATE if answer.answers in self._seen else Status.STALE
            known = answer.answers in self._out or answer.answers in self._given_up
            self._stray(answer, verdict if known else Status.FOREIGN)

    # Evaluation.

    def score(self, models: Mapping[str, Params]) -> Mapping[str, Scores]:
        """Have the free devices measure models on their own test data; {} where none can."""
        letters = self.examiners(self._round)
        found = {name: self._evaluate(params, letters) for name, params in models.items()}
        return {name: scores for name, scores in found.items() if scores is not None}

    def examiners(self, round_: int) -> list[Letter]:
        """A letter to every device that measures a model in this round."""
        self.look()
        rows = np.flatnonzero(self._snapshot(round_).reason == Reason.CHOSEN)
        if 0 < self._evaluators < rows.size:
            rng = generator(self._seed, round_, _EVALUATION)
            rows = np.sort(rng.choice(rows, self._evaluators, replace=False))
        ttl, task = self.waits.evaluate_s, {**self._task, "round": round_, "seed": self._seed}
        node = self.nodes.node_of
        return [Letter(EVALUATE, int(r), node[int(r)], {**task, "device": int(r)}, ttl, round_) for r in rows]

    def _evaluate(self, params: Params, letters: Sequence[Letter]) -> Scores | None:
        waiting = {s.id: s for s in self._send(letters, params) if s.id}
        until = self._clock() + self.waits.evaluate_s
        accuracy, loss = np.full(self.nodes.size, np.nan), np.full(self.nodes.size, np.nan)
        examples, measured = np.zeros(self.nodes.size, np.int64), list[tuple[float, Mapping[str, float]]]()
        while waiting and self._clock() < until:
            arrived = [a for a in self._post.collect(list(waiting)) if a.answers in waiting]
            for answer in arrived:
                row = waiting.pop(answer.answers).letter.device
                if answer.status == Status.DELIVERED and validate.sound_weight(answer.examples):
                    examples[row] = int(answer.examples)
                    accuracy[row] = first_of(answer.metrics, ACCURACY)
                    loss[row] = first_of(answer.metrics, LOSS)
                    measured.append((answer.examples, answer.metrics))
            if waiting and not arrived:
                self._sleep(self.waits.poll_s)
        self.evaluation = validate.weighted(measured)
        return Scores(accuracy, loss, examples) if np.isfinite(loss + accuracy).any() else None

    # What a resumed federation needs.

    def state(self) -> dict[str, Any]:
        """The clock and what is known of the devices."""
        return {"now": self.now, "nodes": self.nodes.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; nodes are asked anew who they are."""
        self._offset, self._began = float(state["now"]), self._clock()
        self.nodes.restore(state["nodes"])
        self._first, self._present, self._seen_as = True, None, None


def orders(plan: Plan, k: int, seed: int) -> dict[str, Any]:
    """What the k-th device of a plan, and no other, is told."""
    local = plan.local
    return {
        "round": plan.round,
        "seed": seed,
        "device": int(plan.chosen[k]),
        "steps": int(plan.steps[k]),
        "lr": local.lr,
        "batch": local.batch,
        "mu": local.mu,
        "probe": local.probe,
        "objective": local.objective,
        "gradients": plan.gradients,
        **{f"option.{name}": float(value) for name, value in local.options.items()},
    }
