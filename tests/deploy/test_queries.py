"""Every query of the dashboard and the alerts reads what a server really exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tools.dashboard.__main__ import OUT, text

from firstlight.engine.build import Parts
from firstlight.server.metric_specs import SPECS, Kind
from tests.conftest import TinyCheckpoint
from tests.deploy.promql import Read, groupings, parsed, reads
from tests.server.asking import CHAT, body, data_url
from tests.server.running import Running, running, tiny_parts

DEPLOY = Path(__file__).parents[2] / "deploy"
ADDED = frozenset({"instance", "job"})
"""Labels that Prometheus adds to whatever it scrapes."""
BY_PROMETHEUS = frozenset({"up"})
"""Metrics that it makes itself."""
LATE = frozenset({"status"})
"""Labels with values that take more than a few requests to appear."""
Exported = dict[str, dict[str, set[str]]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(OUT.read_text())
    return loaded


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((DEPLOY / "prometheus" / "firstlight.rules.yml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


TARGETS = [(p["title"], t["expr"], t["legendFormat"]) for p in panels() for t in p["targets"]]
ALERTS = [(rule["alert"], rule["expr"]) for rule in rules()]
QUERIES = [*((title, expr) for title, expr, _ in TARGETS), *ALERTS]


@pytest.fixture(scope="module")
def parts(tiny_checkpoint: TinyCheckpoint) -> Iterator[Parts]:
    parts = tiny_parts(tiny_checkpoint("qwen3_vl"), prefill_buckets=(64,))
    yield parts
    assert parts.pipeline is not None
    parts.pipeline.close()


@pytest.fixture(scope="module")
def exported(parts: Parts) -> Exported:
    """The values of each label of each sample, after requests of every kind that is charted."""
    with running(parts) as server:
        ask(server)
        with server.client() as http:
            page = http.get("/metrics").text
    found: Exported = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def ask(server: Running) -> None:
    with server.client() as http:
        for words in ("What is it?", "word " * 40):  # the second is larger than every bucket
            assert http.post(CHAT, json=body(data_url(), words, tokens=3)).status_code == 200
        assert http.post(CHAT, json=body() | {"model": "other"}).status_code == 404


def ids(queries: list[Any]) -> list[str]:
    return [query[0] for query in queries]


@pytest.mark.parametrize(("title", "expr"), QUERIES, ids=ids(QUERIES))
def test_a_query_reads_metrics_and_labels_that_a_server_exports(
    title: str, expr: str, exported: Exported
) -> None:
    found = list(reads(parsed(expr)))
    assert found, expr
    for read in found:
        check(read, exported)


def check(read: Read, exported: Exported) -> None:
    if read.metric in BY_PROMETHEUS:
        return
    assert read.metric in exported, read.metric
    labels = exported[read.metric]
    assert read.labels - labels.keys() - ADDED == set(), read
    for name, value in read.equal:
        assert name in LATE or value in labels[name], read


@pytest.mark.parametrize(("title", "expr"), QUERIES, ids=ids(QUERIES))
def test_a_query_groups_by_labels_that_its_metrics_have(
    title: str, expr: str, exported: Exported
) -> None:
    for labels, below in groupings(parsed(expr)):
        for read in below:
            assert labels - exported[read.metric].keys() - ADDED == set(), (labels, read)


@pytest.mark.parametrize(("title", "expr"), QUERIES, ids=ids(QUERIES))
def test_only_what_only_grows_has_a_rate(title: str, expr: str) -> None:
    """The rate of a gauge, and a counter without one, are fluent pictures of nothing."""
    grows = {spec.exported for spec in SPECS.values() if spec.kind is Kind.COUNTER}
    for spec in SPECS.values():
        if spec.kind is Kind.HISTOGRAM:
            grows |= {f"{spec.exported}{suffix}" for suffix in ("_bucket", "_sum", "_count")}
    rated = set(re.findall(r"(?:rate|increase)\((\w+)", expr))
    assert rated <= grows
    bare = {read.metric for read in reads(parsed(expr))} - rated
    # Of graphs that failed their proof the number itself is what matters.
    assert bare & grows <= {"firstlight_graph_verify_failures_total"}


@pytest.mark.parametrize(("title", "expr", "legend"), TARGETS, ids=ids(TARGETS))
def test_a_legend_names_labels_that_the_query_keeps(title: str, expr: str, legend: str) -> None:
    kept = [labels for labels, _ in groupings(parsed(expr))]
    for label in re.findall(r"{{(\w+)}}", legend):
        assert label in ADDED or all(label in labels for labels in kept), (expr, legend)
        assert kept or label in ADDED


@pytest.mark.parametrize(("alert", "expr"), ALERTS, ids=ids(ALERTS))
def test_an_alert_tells_labels_that_its_query_keeps(alert: str, expr: str) -> None:
    (rule,) = [rule for rule in rules() if rule["alert"] == alert]
    assert rule["labels"]["severity"] in ("critical", "warning")
    kept = [labels for labels, _ in groupings(parsed(expr))]
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        assert all(label in labels for labels in kept), (alert, label)
        assert kept or label in ADDED


def test_a_query_of_another_metric_is_found_out(exported: Exported) -> None:
    wrong = (
        "rate(firstlight_no_such_total[5m])",
        "firstlight_time_to_first_token_seconds",
        'rate(firstlight_graph_passes_total{moode="graph"}[5m])',
        'rate(firstlight_graph_passes_total{mode="graf"}[5m])',
    )
    for expr in wrong:
        (read,) = reads(parsed(expr))
        with pytest.raises(AssertionError):
            check(read, exported)
    with pytest.raises(ValueError, match="parenthesis"):
        parsed("sum(firstlight_num_requests_running")


def test_the_dashboard_is_the_one_that_its_tool_makes() -> None:
    assert OUT.read_text() == text()


def test_the_dashboard_takes_any_data_source_and_says_so_everywhere() -> None:
    loaded = dashboard()
    names = [variable["name"] for variable in loaded["templating"]["list"]]
    assert names == ["datasource", "model_name", "instance"]
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(t["datasource"]["uid"] == "${datasource}" for t in panel["targets"])
        assert panel["description"]
    identities = [panel["id"] for panel in loaded["panels"]]
    assert len(set(identities)) == len(identities)


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_a_variable_asks_for_a_metric_that_there_is(exported: Exported) -> None:
    for variable in dashboard()["templating"]["list"][1:]:
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
        assert found is not None
        (read,) = reads(parsed(found[1]))
        check(read, exported)
        assert found[2] in exported[read.metric].keys() | ADDED


def test_prometheus_scrapes_the_path_that_there_is_and_loads_the_rules() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert f'job="{job["job_name"]}"' in dict(ALERTS)["FirstlightDown"]
    for name in config["rule_files"]:
        assert (DEPLOY / "prometheus" / name).exists()
