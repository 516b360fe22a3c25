"""``firstlight bench serve`` as it is typed, on a server of a script."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.bench.fake_server import FakeServer, answer, serving
from tests.conftest import TinyCheckpoint

import firstlight
from firstlight.cli.bench_serve_tables import _in_percent
from firstlight.cli.main import main

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    """A server in a thread."""
    server, ready = FakeServer(script=lambda n: answer("a", "b")), threading.Event()
    ending: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        async with serving(server):
            ending.append((asyncio.get_running_loop(), asyncio.Event()))
            ready.set()
            await ending[0][1].wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(10)
    yield server
    loop, end = ending[0]
    loop.call_soon_threadsafe(end.set)
    thread.join(10)


def test_a_load_is_shown_written_and_drawn(
    fake: FakeServer, tmp_path: Path, capsys: Capsys
) -> None:
    arguments = ["bench", "serve", "--server", fake.url, "--num-requests", "4", "--warmup", "1"]
    arguments += ["--concurrency", "2", "--slo", "ttft:10000", "--images", "1"]
    arguments += ["--image-size", "8x8", "--json", str(tmp_path / "a.json")]
    assert main([*arguments, "--plot", str(tmp_path / "a.svg")]) == 0
    shown = capsys.readouterr().out
    for word in ("time to first token", "p99", "output_tokens_per_s", "Pictures", "closed"):
        assert word in shown
    made = json.loads((tmp_path / "a.json").read_text())
    assert (made["totals"]["answered"], made["settings"]["concurrency"]) == (4, 2)
    assert len(fake.asked) == 5
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


def test_shares_are_shown_in_percent_and_unknown_ones_are_left_out() -> None:
    row = {"phase": "prefill", "batches": 3, "from_graphs": 0.6667, "padding": 0.0}
    nothing = {"phase": "decode", "batches": 0, "from_graphs": None, "padding": None}
    assert _in_percent(row) == row | {"from_graphs": "66.7%", "padding": "0.0%"}
    assert _in_percent(nothing) == nothing


def test_errors_are_shown_by_kind_and_no_answer_at_all_is_code_1(
    fake: FakeServer, capsys: Capsys
) -> None:
    fake.status = lambda n: 429
    fake.script = lambda n: ['{"error": {"message": "too much waits", "code": "queue_full"}}']
    asked = ["bench", "serve", "--server", fake.url, "--num-requests", "3", "--warmup", "0"]
    assert main(asked) == 1
    shown = capsys.readouterr().out
    assert "HTTP 429 queue_full" in shown
    assert "too much waits" in shown


def test_the_key_is_that_of_the_named_variable(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "a-secret")
    asked = ["bench", "serve", "--server", fake.url, "--num-requests", "1", "--warmup", "0"]
    assert main([*asked, "--api-key-env", "SOME_KEY"]) == 0
    assert {h.get("authorization") for h in fake.headers} == {"Bearer a-secret"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--num-requests", "0"], "num_requests = 0; accepted"),
        (["--input-tokens", "x"], "input_tokens = 'x'; accepted"),
        (["--concurrency", "2", "--request-rate", "1"], "contradict each other"),
        (["--json", "no/such/folder/x.json"], "there is no such folder"),
        (["--plot", "no/such/folder/x.svg"], "--plot = 'no/such/folder/x.svg'"),
        (["--server", "http://127.0.0.1:9"], "cannot be asked"),
        (["--server", "http://a", "--start", "b"], "give one of them"),
        (["--start-options", "--eager"], "needs --start"),
        (["--start", "b", "--start-options", "'"], "No closing quotation"),
        (["--api-key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY holds no API key"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], said: str, capsys: Capsys) -> None:
    assert main(["bench", "serve", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_server_is_started_measured_and_ended(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(firstlight.__file__).parents[1]))
    options = "--max-num-seqs 2 --buckets 64 --proof off --padding-cost free"
    asked = ["bench", "serve", "--start", str(tiny_checkpoint("qwen3_vl"))]
    asked += ["--start-options", options, "--num-requests", "3", "--warmup", "1", "--ignore-eos"]
    asked += ["--input-tokens", "30", "--output-tokens", "4", "--json", str(tmp_path / "a.json")]
    assert main(asked) == 0
    made = json.loads((tmp_path / "a.json").read_text())
    assert (made["totals"]["answered"], made["totals"]["output_tokens"]) == (3, 12)
    assert [row["from_graphs"] for row in made["graphs"]] == [1, 1]
    with pytest.raises(OSError, match="refused"):
        urlopen(made["about"]["server"], timeout=5)
