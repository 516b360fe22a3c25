"""The pages about running a server name settings and metrics that there are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from tools.docs.pages import ROOT, pages

from firstlight.config import EngineConfig
from firstlight.server.metric_specs import SPECS, Kind
from firstlight.server.settings import ServerSettings

DOCS = ROOT / "docs"
ELSEWHERE = {"client_max_body_size", "proxy_read_timeout"}
"""Words of the proxy."""
SETTINGS = {entry.name for settings in (EngineConfig, ServerSettings) for entry in fields(settings)}
EXPORTED = {spec.exported for spec in SPECS.values()}
EXPORTED |= {
    f"{spec.exported}{suffix}"
    for spec in SPECS.values()
    if spec.kind is Kind.HISTOGRAM
    for suffix in ("_bucket", "_sum", "_count")
}


def known(name: str) -> bool:
    """Whether it is a setting, or a metric without the prefix that all have."""
    is_metric = f"firstlight_{name}" in EXPORTED or name.startswith("process_")
    return name in SETTINGS | ELSEWHERE or is_metric


@pytest.mark.parametrize("name", ["deployment.md", "scheduling.md"])
def test_a_page_names_settings_that_there_are(name: str) -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", (DOCS / name).read_text()))
    assert len(named) > 3
    assert {word for word in named if not known(word)} == set()


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_metric_that_a_page_names_is_exported(page: Path) -> None:
    for name in re.findall(r"\bfirstlight_[a-z0-9_]+", page.read_text()):
        begins = name.endswith("_") and any(one.startswith(name) for one in EXPORTED)
        assert name in EXPORTED or begins, name


def test_whoever_stops_a_server_is_told_to_wait_long_enough() -> None:
    told = re.findall(
        r"(?:TimeoutStopSec=|--stop-timeout |terminationGracePeriodSeconds: )(\d+)",
        (DOCS / "deployment.md").read_text(),
    )
    defaults = ServerSettings()
    assert len(told) == 4
    assert min(map(int, told)) > defaults.drain_seconds + defaults.body_seconds
