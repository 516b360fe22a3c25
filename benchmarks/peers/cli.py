"""Measure firstlight beside other engines: same weights, same threads, in turns.

Each engine runs in a process of its own, in an environment that ``--install`` makes and that is
kept below ``--home``. Rounds are interleaved: every engine has its turn in every round, and sleeps
while others have theirs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import about
from benchmarks.peers import report as reports
from benchmarks.peers.agreement import Agreement, agreements
from benchmarks.peers.bars import bars
from benchmarks.peers.client import ROOT, PeerError
from benchmarks.peers.engines import ENGINES, REFERENCE, Group
from benchmarks.peers.environments import Environments, InstallError
from benchmarks.peers.models import ModelError, Models
from benchmarks.peers.plan import KEYS, START, Plan, check_names, parse_options
from benchmarks.peers.prompts import PromptMaker
from benchmarks.peers.resources import starts
from benchmarks.peers.session import GroupResult, Session


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        plan = _plan(given)
    except ValueError as error:
        parser.error(str(error))
    environments = Environments(plan.home, _say, may_install=given.install)
    run = _Run(plan, environments)
    found = run.report()
    reports.write(found, given.json)
    if given.svg is not None and found.rows:
        bars(found.rows, _caption(found), given.svg)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engines", default=",".join(ENGINES), help="of " + ", ".join(ENGINES))
    parser.add_argument("--only", default="", metavar="ROW,...", help="of " + ", ".join(KEYS))
    parser.add_argument("--rounds", type=int, default=5, help="that count; one more warms up")
    parser.add_argument("--quick", action="store_true", help="one round of short answers")
    parser.add_argument("--threads", type=int, default=2, help="of every engine, pinned to cores")
    parser.add_argument(
        "--option", action="append", default=[], metavar="ENGINE.NAME=VALUE",
        help="what an engine is given beside the usual, e.g. firstlight.fuse=false",
    )  # fmt: skip
    parser.add_argument("--install", action="store_true", help="install peers that are not there")
    parser.add_argument("--home", type=Path, default=ROOT / "build" / "peers", help="what is kept")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    parser.add_argument("--svg", type=Path, help="draw the rows into this file")
    return parser


def _plan(given: argparse.Namespace) -> Plan:
    """What was asked, checked.

    Raises:
        ValueError: an unknown name, or a number that makes no sense.
    """
    engines = [name for name in given.engines.split(",") if name]
    only = [key for key in given.only.split(",") if key]
    check_names("engine", engines, ENGINES)
    check_names("row", only, KEYS)
    if given.rounds < 1:
        raise ValueError(f"--rounds {given.rounds}; at least 1")
    plan = Plan(
        engines=tuple(name for name in ENGINES if name in engines),
        rounds=1 if given.quick else given.rounds,
        threads=given.threads,
        home=given.home.resolve(),
        only=frozenset(only),
        quick=given.quick,
        options=parse_options(given.option),
    )
    if not plan.cpus:
        raise ValueError(f"--threads {given.threads}; at least 1")
    return plan


class _Run:
    """All groups of a plan, one after another."""

    def __init__(self, plan: Plan, environments: Environments) -> None:
        self._plan = plan
        self._environments = environments
        self._models = Models(plan.home, environments)
        self._session = Session(plan, environments, self._models, _say)

    def report(self) -> reports.Report:
        """Measure, and compare the answers."""
        groups: dict[Group, GroupResult] = {}
        agreement: dict[Group, dict[str, Agreement]] = {}
        for group in (Group.TEXT, Group.FOUR_BIT, Group.VISION):
            if self._plan.turns(group):
                groups[group] = self._session.run(group, self._prompts(group))
                agreement[group] = self._agreements(groups[group])
        found = starts(self._plan, self._session, _say) if self._plan.wants(START) else {}
        specs = [ENGINES[name] for name in self._plan.engines if ENGINES[name].packages]
        return reports.Report(
            about=about() | {"threads": self._plan.threads, "dtype": self._plan.dtype},
            engines=self._plan.engines,
            groups=groups,
            agreement=agreement,
            starts=found,
            environments={spec.name: self._environments.size(spec) for spec in specs},
        )

    def _prompts(self, group: Group) -> PromptMaker:
        from transformers import AutoTokenizer

        form = ENGINES[REFERENCE].forms[Group.VISION if group is Group.VISION else Group.TEXT]
        tokenizer = AutoTokenizer.from_pretrained(self._models.path(form, group))
        return PromptMaker(tokenizer, self._plan.home / "pictures")

    def _agreements(self, result: GroupResult) -> dict[str, Agreement]:
        """By a float32 reference that is started for it, when nothing is timed any more."""
        if not result.said:
            return {}
        try:
            with self._session.reference(result.group) as reference:
                return agreements(result, reference)
        except (PeerError, InstallError, ModelError) as error:
            _say(f"no float32 reference for {result.group.value}: {error}")
            return agreements(result, None)


def _caption(found: reports.Report) -> str:
    about_it = found.about
    return (
        f"{about_it['cpu']}, {about_it['threads']} threads, {about_it['dtype']}; firstlight at "
        f"{about_it['commit']}, {about_it['date']}. Bars are medians, lines go from least to most."
    )


def _say(what: str) -> None:
    print(what, flush=True)
