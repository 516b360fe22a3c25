"""Many clients against a real server: is every answer right, is nothing lost, is memory flat?

A first server, without caches and with one request at a time, gives the answer that each request
gets alone. A second one is then asked by all clients at once, which leave at times and at times ask
for nonsense. With ``--kill`` the engine's process is killed under load, the step loop fails, and
the server is told to end. Exit code 1 if anything that is claimed does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tools.load import incidents
from tools.load.asked import all_asked
from tools.load.bad import all_bad
from tools.load.checks import of_answers, of_health, of_memory, of_rest
from tools.load.client import Work
from tools.load.compare import Spread
from tools.load.process import ServerProcess
from tools.load.report import Report
from tools.load.run import each_once, lone_answers, under_load
from tools.load.tally import Tally
from tools.load.watch import Watch, idle, metrics

# float32: the bits of bfloat16 are so few that a batch of another shape may choose another token.
MAX_CONTEXT = 1024
COMMON = ("--dtype", "float32", "--max-context", str(MAX_CONTEXT))
ALONE = (*COMMON, "--max-num-seqs", "1", "--no-prefix-cache", "--encoder-cache-bytes", "0")
# So few pages and bytes that requests are preempted and what is cached is given up all the time.
TIGHT = (*COMMON, "--kv-pages", "97", "--encoder-cache-bytes", "1000000", "--check-memory")
COUNTED = (
    "num_preemptions_total",
    "prefix_cache_hits_total",
    "prefix_cache_evictions_total",
    "embed_cache_evictions_total",
    "encoder_images_total",
    "generation_tokens_total",
)
"""Metrics that show whether the hard paths were taken."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("scripts/load", description=__doc__)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=30.0, help="of load; 0 for none")
    parser.add_argument("--distinct", type=int, default=240, help="requests that differ")
    parser.add_argument("--seed", type=int, default=0, help="of what is asked, and when")
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds; more is hung")
    parser.add_argument("--kill", action="store_true", help="also kill, fail and end under load")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--logs", type=Path, help="folder for the servers' lines")
    return parser.parse_args()


def main() -> int:
    """Run what the arguments say."""
    given = _arguments()
    with tempfile.TemporaryDirectory() as temporary:
        logs = given.logs or Path(temporary)
        logs.mkdir(parents=True, exist_ok=True)
        report = Report({k: v for k, v in vars(given).items() if k not in ("json", "logs")})
        asked = all_asked(given.seed, given.distinct)
        _say(f"lone answers of {len(asked)} requests")
        with ServerProcess(ALONE, logs / "alone.log") as process:
            pairs = lone_answers(process.url, asked)
        work = Work("", pairs, all_bad(given.seed, MAX_CONTEXT), Tally(), Spread(), given.deadline)
        if given.minutes:
            _load(given, work, logs, report)
        if given.kill:
            _incidents(given, work, logs, report)
    report.show(sys.stdout)
    if given.json is not None:
        report.write(given.json)
    return 0 if report.holds else 1


def _load(given: argparse.Namespace, work: Work, logs: Path, report: Report) -> None:
    _say(f"{given.clients} clients for {given.minutes:g} minutes")
    with ServerProcess((*TIGHT, "--supervise"), logs / "load.log") as process:
        asyncio.run(_loaded(given, work, process, report))


async def _loaded(
    given: argparse.Namespace, work: Work, process: ServerProcess, report: Report
) -> None:
    work = replace(work, url=process.url)
    tally = work.tally
    watch = Watch(process, lambda: tally.in_flight)

    async def meanwhile() -> None:
        until = time.monotonic() + 60 * given.minutes
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 60))
            rss = watch.facts[-1][1].rss >> 20 if watch.facts else 0
            _say(f"{tally.answers} answers, {len(tally.troubles)} troubles, {rss} MiB")

    await each_once(work, given.clients)
    before = await idle(process)
    seconds = await under_load(work, given.clients, given.seed, watch, meanwhile)
    after = await idle(process)
    report.measured(tally, seconds, work.spread.most)
    counted = await metrics(process.url)
    report.figures |= {name: counted[name] for name in COUNTED if name in counted}
    report.add(of_answers(tally))
    report.add(of_health(watch))
    report.add(of_memory(watch, seconds))
    report.add(of_rest(before, after))
    report.curve = watch.curve()


def _incidents(given: argparse.Namespace, work: Work, logs: Path, report: Report) -> None:
    _say("a kill, and the end of the server, under load")
    with ServerProcess((*TIGHT, "--supervise"), logs / "killed.log") as process:
        for name, doing in (("kill", incidents.killed), ("end", incidents.ended)):
            incident = incidents.of(name, work, process, given.clients)
            asyncio.run(doing(incident, process))
            report.add(incident.checks)
            report.troubles += incident.unexcused
    _say("a fault of the step loop under load")
    module = "tools.load.faulty"
    with ServerProcess(TIGHT, logs / "faulty.log", module=module) as process:
        incident = incidents.of("fault", work, process, given.clients)
        asyncio.run(incidents.faulted(incident, process))
        report.add(incident.checks)
        report.troubles += incident.unexcused


def _say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
