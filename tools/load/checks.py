"""What a load test claims, each with its number and whether it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tools.load.tally import Tally, Trouble
from tools.load.watch import Idle, Watch

SLOPE = 0.5 * (1 << 20)
"""Bytes a minute by which resident memory may grow over the second half of the load."""
STANDSTILL_S = 10.0
"""Seconds without a step while requests are under way."""
SHORT_S = 300.0
"""Seconds of load below which memory is shown and not judged: the allocator is still filling."""


@dataclass(frozen=True, slots=True)
class Check:
    """One claim: what was found, what is accepted, and whether it holds."""

    name: str
    found: str
    accepted: str
    holds: bool


Excuse = Callable[[Trouble], bool]
"""Whether a trouble is what an incident must bring about."""


def of_answers(tally: Tally, excused: Excuse = lambda trouble: False) -> Iterator[Check]:
    """No answer is wrong, none hangs, none is cut in silence, no error comes unasked."""
    counts = Counter(t.kind for t in tally.troubles if not excused(t))
    for kind, name in (
        ("wrong", "wrong answers"),
        ("hung", "hung requests"),
        ("cut", "answers cut in silence"),
        ("told", "errors nobody asked for"),
        ("broken", "broken connections"),
        ("not refused", "bad requests not refused as they should be"),
    ):
        yield Check(name, str(counts[kind]), "0", not counts[kind])
    yield Check("answers compared", str(tally.answers), "above 0", tally.answers > 0)


def of_health(watch: Watch) -> Iterator[Check]:
    """``/health`` said ``ok`` throughout, steps were made, and the engine never failed."""
    said = Counter(look.status or "no answer" for look in watch.health)
    holds = set(said) == {"ok"}
    yield Check("/health", ", ".join(f"{k} {n}" for k, n in said.items()), "ok alone", holds)
    slowest = max((look.seconds for look in watch.health), default=0.0)
    yield Check("slowest /health, s", f"{slowest:.2f}", "below 5", slowest < 5)
    still = watch.longest_standstill()
    holds = still < STANDSTILL_S
    yield Check("longest without a step, s", f"{still:.1f}", f"below {STANDSTILL_S:g}", holds)
    faults = max((look.faults for look in watch.health), default=0)
    yield Check("faults of the engine", str(faults), "0", not faults)


def of_memory(watch: Watch, seconds: float) -> Iterator[Check]:
    """Resident memory is flat over the second half."""
    rss = [facts.rss for _, facts in watch.facts]
    mib = 1 << 20
    shown = f"{rss[0] / mib:.0f} to {rss[-1] / mib:.0f}, at most {max(rss) / mib:.0f}"
    yield Check("resident MiB", shown, "", True)
    slope = watch.slope()
    judged = seconds >= SHORT_S
    accepted = f"at most {SLOPE / mib:g}" if judged else f"(not judged below {SHORT_S:g} s)"
    found = f"{slope / mib:+.3f}"
    yield Check("growth, MiB a minute", found, accepted, slope <= SLOPE or not judged)


def of_rest(before: Idle, after: Idle) -> Iterator[Check]:
    """Nothing of any request is left when all have gone."""
    for name, n in after.left.items():
        yield Check(f"left: {name}", str(n), "0", not n)
    pages = sum(after.pages.values())
    yield Check(
        "pages free or cached", str(pages - after.pages["held"]), f"all {pages}", _all_there(after)
    )
    for name in ("threads", "files"):
        was, now = getattr(before.facts, name), getattr(after.facts, name)
        yield Check(f"{name} at rest", str(now), f"at most {was}, as before", now <= was)
    for name, n in after.cached.items():
        yield Check(name, str(n), "", True)


def _all_there(idle: Idle) -> bool:
    return not idle.pages["held"]
