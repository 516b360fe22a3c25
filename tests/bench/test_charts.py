"""The pictures of a load, and the charts that they are made of."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from firstlight.bench.charts import draw
from firstlight.bench.plot import Chart, page
from tests.bench.fake_server import FakeServer, answer
from tests.bench.loads import load

_SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(svg).iter(f"{_SVG}text")]


def lines(svg: str) -> list[list[tuple[float, float]]]:
    """The points of each line, in pixels."""
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in e.get("points", "").split())]
        for e in ET.fromstring(svg).iter(f"{_SVG}polyline")
    ]


def test_a_load_is_drawn_as_shares_within_a_time_and_tokens_over_time() -> None:
    found = load(FakeServer(script=lambda n: answer("a", "b", "c", pause=0.01)), num_requests=4)
    drawn = draw(found, "a <caption>")
    assert {"first token", "end", "gap", "output", "a <caption>"} <= set(texts(drawn))
    first, end, _gap, output = lines(drawn)
    assert len(first) == len(end) == 101
    assert all(a <= b for (a, _), (b, _) in zip(first, end, strict=True))
    assert len(output) == 60


def test_a_load_without_an_answer_is_drawn_empty() -> None:
    found = load(FakeServer(script=lambda n: [None]))
    assert lines(draw(found, "nothing")) == [[], [], [], []]


def test_a_line_of_many_points_has_round_numbers_below_it() -> None:
    steps = [(float(x), float(x)) for x in range(234)]
    svg = page([Chart("t", "x", "y", {"a": steps}, dots=False)], "c")
    assert {"0", "50", "100", "150", "200"} <= set(texts(svg))
    assert not list(ET.fromstring(svg).iter(f"{_SVG}circle"))


def test_a_line_of_few_points_has_each_marked_and_named() -> None:
    svg = page([Chart("t", "x", "y", {"a": [(0.0, 1.0), (7.0, 2.0)]})], "c")
    assert "7" in texts(svg)
    assert len(list(ET.fromstring(svg).iter(f"{_SVG}circle"))) == 2
