"""Why a job waits: as data in the plan, as words on request."""

from typing import Any

import numpy as np

from eiffel.core.jobs import Floats, Ints, Plan, Refusal, Rows, Snapshot


def verdict(
    snapshot: Snapshot, rows: Rows, *, code: Refusal | Ints = Refusal.NO_ROOM, price: Floats | None = None,
    value: Floats | None = None, until: float = 0.0, memo: Any = None,
) -> Plan:  # fmt: skip
    """Make a plan of placement rows and give every waiting job its reason.

    The device type in the way is the one on which the job would be worth most (`value` (J, R), else its
    rate). With prices (R,): a value below the price there is PRICE, anything else `code`.
    """
    jobs = len(snapshot)
    worth = snapshot.rate if value is None else value
    waits = rows.held(jobs) == 0
    limit = worth.argmax(axis=1) if worth.size else np.full(jobs, -1, np.int64)
    best = worth.max(axis=1, initial=0.0)
    why = np.where(waits, code, Refusal.NONE)
    asked = np.full(jobs, np.nan)
    if price is not None:
        asked = price[limit]
        why[waits & (best <= asked)] = Refusal.PRICE
    why[waits & (snapshot.gang > snapshot.capacity.max(initial=0))] = Refusal.TOO_LARGE
    why[waits & (snapshot.rate.max(axis=1, initial=0.0) <= 0)] = Refusal.UNRUNNABLE
    paid = best if price is not None else np.full(jobs, np.nan)
    return Plan(rows, why.astype(np.int64), limit.astype(np.int64), asked, paid, until, memo)


WORDS = {
    Refusal.NONE: "it runs",
    Refusal.NO_ROOM: "jobs that go first hold the {type} GPUs: {free} free, it needs {gang}",
    Refusal.PRICE: "a {type} GPU costs {price:.3g} and is worth {value:.3g} to this job",
    Refusal.BEHIND: "the queue is blocked by an earlier job; {free} {type} GPUs are free, it needs {gang}",
    Refusal.FRAGMENTED: "{free} {type} GPUs are free, but no node has {gang} of them",
    Refusal.SHARE: "it has had its share of device time for now; {free} {type} GPUs are free",
    Refusal.TOO_LARGE: "it needs {gang} GPUs at once, more than there are",
    Refusal.UNRUNNABLE: "its rate is 0 on every device type",
    Refusal.UNSOLVED: "it arrived after the last allocation was computed",
}
REMEDY = {
    Refusal.NO_ROOM: "{short} more {type} GPUs, or a higher place in the order, would place it",
    Refusal.PRICE: "a price below {value:.3g} (fewer jobs ahead, or a weight {factor:.2g} times higher) would place it",
    Refusal.BEHIND: "backfilling, or the end of an earlier job, would place it",
    Refusal.FRAGMENTED: "a node of {gang} free GPUs, or leave to spread, would place it",
    Refusal.SHARE: "the next slots in which its share is due place it",
    Refusal.TOO_LARGE: "a cluster with {gang} GPUs (of one type, unless the policy mixes types) would place it",
    Refusal.UNRUNNABLE: "a measured rate above 0 on some device type would place it",
    Refusal.UNSOLVED: "the next solve places it",
}


def words(why: int, *, type_: str, gang: int, free: int, price: float, value: float) -> str:
    """Put a refusal into a sentence: which resource, which price, what would place the job."""
    factor = price / value if value > 0 else float("inf")
    facts = {
        "type": type_, "gang": gang, "free": free, "price": price, "value": value,
        "short": max(gang - free, 0), "factor": factor,
    }  # fmt: skip
    reason = Refusal(why)
    sentence = WORDS[reason].format(**facts)
    return f"{sentence}; {REMEDY[reason].format(**facts)}" if reason in REMEDY else sentence
