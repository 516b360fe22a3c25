"""Runs a file of tests in a client's environment, and tells what became of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.clients.environments import run

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of the tests of a suite; failures and skips with their texts."""

    passed: frozenset[str]
    failed: Mapping[str, str]
    skipped: Mapping[str, str]


def run_suite(
    client: str, program: str, folder: Path, *options: str, seconds: float = 900, **environ: str
) -> Outcomes:
    """Run ``programs/PROGRAM`` with pytest, by itself: without this project's settings.

    Args:
        options: of pytest.
        environ: variables that the program reads.
    """
    report, settings = folder / "report.xml", folder / "pytest.ini"
    settings.write_text("[pytest]\n")
    command = ["python", "-m", "pytest", str(PROGRAMS / program), "--noconftest"]
    command += ["-c", str(settings), "-p", "no:cacheprovider", f"--junit-xml={report}", *options]
    done = run(client, command, cwd=folder, seconds=seconds, **environ)
    sys.stdout.write(done.stdout)  # shown by pytest if the test fails
    assert report.exists(), done.stdout + done.stderr
    return _outcomes(report)


def _outcomes(report: Path) -> Outcomes:
    passed, failed, skipped = set(), {}, {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = case.attrib["name"]
        broken = case.find("failure") if case.find("failure") is not None else case.find("error")
        left = case.find("skipped")
        if broken is not None:
            failed[name] = f"{broken.get('message')}\n{broken.text}"
        elif left is not None:
            skipped[name] = left.get("message", "")
        else:
            passed.add(name)
    return Outcomes(frozenset(passed), failed, skipped)
