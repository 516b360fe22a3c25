"""Mutations of body, slots, metadata, tape and graphs: each is found, and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.core.reason import Phase
from firstlight.graphs import BodyInputs, BucketState, Extent, Graph, Padding, SlotSpec
from firstlight.graphs.backends.tape import plan as tape_plan
from firstlight.graphs.proof import Placed, ProofLevel
from tests.graphs.proof.rig import FaultyTape, PagedDecoder, Pages, Rig
from tests.paged_decoder import HIDDEN, PAGE

QUICK, FULL = ProofLevel.QUICK, ProofLevel.FULL
LEVELS = [QUICK, FULL]


def found(rig: Rig, *words: str) -> None:
    """Some finding holds all the words, and its bucket serves nobody."""
    findings = rig.findings()
    assert any(all(word in finding for word in words) for finding in findings), findings
    assert BucketState.QUARANTINED in {rig.buckets.state(size) for size in rig.buckets.sizes}


def forgetting(rig_slot: str, columns: slice) -> Any:
    """A graph that replays with what one slot held at its first replay."""
    held: dict[int, Tensor] = {}

    def replay(graph: Graph) -> Tensor:
        buf = rigs[-1].registry.buffer(rig_slot)
        part = buf[..., columns] if columns != slice(None) else buf
        now = part.clone()
        part.copy_(held.setdefault(id(graph), torch.zeros_like(now)))
        result = graph.replay()
        part.copy_(now)
        return result

    return FaultyTape(replay)


rigs: list[Rig] = []


def rig_of(**settings: Any) -> Rig:
    """A rig that faults can reach; at the quick level a bucket of either way to check."""
    few = settings.get("level") is not QUICK
    settings.setdefault("buckets", (12,) if few else (12, 24))
    rigs[:] = [Rig(**settings)]
    return rigs[0]


# -- graphs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_graph_that_drops_a_segment_is_found_and_the_segment_named(level: ProofLevel) -> None:
    columns = slice(HIDDEN, HIDDEN + 8)
    rig = rig_of(level=level, backend=forgetting("input_embeds", columns))
    found(rig, "segment deepstack.0", "the replay's does not")


@pytest.mark.parametrize("level", LEVELS)
def test_a_graph_with_stale_positions_is_found(level: ProofLevel) -> None:
    rig = rig_of(level=level, backend=forgetting("positions", slice(None)))
    found(rig, "positions, row 1 of 3", "the replay's does not")


@pytest.mark.parametrize("level", LEVELS)
def test_a_graph_that_forgets_a_plane_is_found(level: ProofLevel) -> None:
    rig = rig_of(level=level, backend=forgetting("layer_embeds", slice(None)))
    found(rig, "plane layer_embeds", "the replay's does not")


@pytest.mark.parametrize("level", LEVELS)
def test_a_baked_page_table_is_found(level: ProofLevel) -> None:
    found(
        rig_of(level=level, backend=forgetting("page_table", slice(None))),
        "is the first of",
    )


def test_a_graph_that_writes_foreign_memory_is_found() -> None:
    def replay(graph: Graph) -> Tensor:
        rigs[-1].decoder.pools[0][0, -1] += 1
        return graph.replay()

    found(rig_of(backend=FaultyTape(replay)), "keys 0", "outside of every batch")


def test_a_graph_that_writes_beside_the_sink_is_found() -> None:
    def replay(graph: Graph) -> Tensor:
        result = graph.replay()
        rigs[-1].decoder.pools[1][0, 1] += 1
        return result

    found(rig_of(level=QUICK, backend=FaultyTape(replay)), "values 0", "unit 1", "beside the sink")


def test_graphs_that_spoil_each_other_are_found_in_shuffled_order() -> None:
    ran: list[int] = []

    def replay(graph: Graph) -> Tensor:
        result = graph.replay()
        ran.append(result.shape[0])
        # Alone each is right; after the larger one, the smaller one finds its memory changed.
        return result + 1 if ran[-2:] == [24, 4] and len(set(ran)) == 2 else result

    rig = rig_of(backend=FaultyTape(replay), buckets=(4, 24))
    ran.append(4)  # so that the very first proof of the small bucket does not follow the large one
    graph = rig.runner
    graph.capture(24)
    ran.append(4)
    graph.capture(4)
    assert rig.buckets.state(4) is BucketState.READY
    proofs = [rig.prover.prove(graph.subject(size)) for size in (24,)]
    assert proofs[0].passed
    assert "after a replay of the bucket of 24 rows" in str(
        rig.prover.prove_order([graph.subject(24), graph.subject(4)])[4]
    )


def test_intermediates_that_overlap_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tape_plan._lifetimes

    def cut(*given: Any) -> tuple[dict[int, int], dict[int, int]]:
        first, last = real(*given)
        return first, {i: min(last[i], first[i] + 6) for i in last}

    monkeypatch.setattr(tape_plan, "_lifetimes", cut)
    found(rig_of(level=QUICK), "replay and eager at the same shape")


# -- slots ------------------------------------------------------------------------------------


def policy(name: str, **changes: Any) -> Any:
    """Break the declaration of one slot, past its own checks."""

    def change(specs: list[SlotSpec]) -> None:
        for i, spec in enumerate(specs):
            if spec.name == name:
                broken = replace(spec)
                for field, value in changes.items():
                    object.__setattr__(broken, field, value)
                specs[i] = broken

    return change


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("slot", ["write_locations", "positions", "types", "input_embeds"])
def test_padding_that_is_not_reset_is_found(slot: str, level: ProofLevel) -> None:
    rig = rig_of(level=level, specs=policy(slot, padding=Padding.KEEP))
    found(rig, f"padding of slot {slot} is stale")


def test_a_plane_padded_with_another_value_than_its_neutral_one_is_found() -> None:
    rig = rig_of(level=QUICK, specs=policy("layer_embeds", pad_value=0.0))
    found(rig, "padding of slot layer_embeds", "does not hold 1")


def test_segments_that_keep_an_earlier_batchs_features_are_found() -> None:
    found(rig_of(level=QUICK, specs=policy("input_embeds", segments=())),
          "slot input_embeds without data is stale")  # fmt: skip


def test_a_live_boundary_that_is_not_refreshed_is_found() -> None:
    def never(buf: Tensor, live: Extent, padded: Extent) -> None:
        pass

    found(rig_of(level=QUICK, specs=policy("num_token_non_padded", hook=never)),
          "num_token_non_padded says")  # fmt: skip


# -- metadata ---------------------------------------------------------------------------------


class Broken(Pages):
    """Metadata with a fault; eager and replay share it, so only comparing runs shows it."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        return self.spoil(super().values(requests), requests)

    def spoil(self, values: dict[str, Tensor], requests: Sequence[Placed]) -> dict[str, Tensor]:
        """The fault."""
        return values


class NextSlot(Broken):
    """Every row is stored one slot too far."""

    def spoil(self, values: dict[str, Tensor], requests: Sequence[Placed]) -> dict[str, Tensor]:
        return values | {"write_locations": values["write_locations"] + 1}


class PageNotSlot(Broken):
    """Page numbers stand where token slots belong."""

    def spoil(self, values: dict[str, Tensor], requests: Sequence[Placed]) -> dict[str, Tensor]:
        return values | {"write_locations": values["write_locations"] // PAGE}


class OwnPastLost(Broken):
    """A cached prefix is not counted."""

    def spoil(self, values: dict[str, Tensor], requests: Sequence[Placed]) -> dict[str, Tensor]:
        facts = values["attention_rows"].clone()
        facts[:, 2] = facts[:, 1]
        return values | {"attention_rows": facts}


class FirstRowsShared(Broken):
    """The second request is said to begin where the first does."""

    def spoil(self, values: dict[str, Tensor], requests: Sequence[Placed]) -> dict[str, Tensor]:
        facts = values["attention_rows"].clone()
        facts[1:, 0] = 0
        return values | {"attention_rows": facts}


class Backwards(Broken):
    """Tables list a request's pages from the last to the first."""

    def spoil(self, values: dict[str, Tensor], requests: Sequence[Placed]) -> dict[str, Tensor]:
        table = values["page_table"].clone()
        for i, request in enumerate(requests):
            table[i, : len(request.units)] = torch.tensor(request.units[::-1])
        return values | {"page_table": table}


class OutOfRange(Broken):
    """A page that does not exist."""

    def spoil(self, values: dict[str, Tensor], requests: Sequence[Placed]) -> dict[str, Tensor]:
        return values | {"write_locations": values["write_locations"] + 10_000}


@pytest.mark.parametrize(
    ("memory", "word"),
    [
        (NextSlot, ""),
        (PageNotSlot, "was written"),
        (OwnPastLost, "second chunk"),
        (FirstRowsShared, "alone and unpadded"),
        (Backwards, ""),
        (OutOfRange, "raised"),
    ],
)
def test_metadata_that_eager_shares_is_found_by_comparing_runs(
    memory: type[Pages], word: str
) -> None:
    found(rig_of(memory=memory, buckets=(12,)), word)


# -- bodies -----------------------------------------------------------------------------------


class RowsMix(PagedDecoder):
    """Adds the mean over all rows, padding included."""

    def forward(self, inputs: BodyInputs) -> Tensor:
        return super().forward(inputs) + inputs.embeds[:, :HIDDEN].mean(0)


class ReadsBeyond(PagedDecoder):
    """Adds a row of the slot behind the bucket."""

    def forward(self, inputs: BodyInputs) -> Tensor:
        rows, width = inputs.embeds.shape
        whole = inputs.embeds.as_strided((rows + 1, width), (width, 1))
        return super().forward(inputs) + whole[rows, :HIDDEN]


@pytest.mark.parametrize("level", LEVELS)
def test_a_body_whose_live_rows_read_padding_is_found(level: ProofLevel) -> None:
    found(rig_of(decoder=RowsMix(), level=level, buckets=(12,)), "padding rows")


def test_large_buckets_show_a_padding_leak_in_their_windows() -> None:
    found(rig_of(decoder=RowsMix(), level=QUICK, buckets=(24,)), "windows of its rows")


def test_a_body_that_reads_behind_its_bucket_is_found() -> None:
    found(rig_of(decoder=ReadsBeyond(), level=QUICK, buckets=(12,)), "rows beyond the bucket")


class NoSecondStack(PagedDecoder):
    """The write of one segment is removed; eager lacks it too."""

    def stack(self, layer: int, rows: Tensor) -> Tensor:
        return super().stack(layer, rows) * (layer == 0)


class NoTypes(PagedDecoder):
    """A declared plane is not read."""

    def forward(self, inputs: BodyInputs) -> Tensor:
        zero = {"types": torch.zeros_like(inputs.planes["types"])}
        return super().forward(replace(inputs, planes={**inputs.planes, **zero}))


class OnePositionRow(PagedDecoder):
    """Height and width of a picture are lost."""

    def forward(self, inputs: BodyInputs) -> Tensor:
        first = inputs.positions[:1].expand_as(inputs.positions)
        return super().forward(replace(inputs, positions=first))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("decoder", "names"),
    [
        (NoSecondStack, ["segment deepstack.1"]),
        (NoTypes, ["plane types"]),
        (OnePositionRow, ["positions, row 1 of 3", "positions, row 2 of 3"]),
    ],
)
def test_what_is_declared_but_never_read_is_said_of_the_model_not_of_the_graph(
    decoder: type[PagedDecoder], names: list[str], level: ProofLevel
) -> None:
    rig = rig_of(decoder=decoder(), level=level)
    assert rig.unread() == [f"{name} is declared, but no output depends on it" for name in names]
    assert {rig.buckets.state(size) for size in rig.buckets.sizes} == {BucketState.READY}


@pytest.mark.parametrize("level", LEVELS)
def test_decode_graphs_with_stale_tables_are_found(level: ProofLevel) -> None:
    rig = rig_of(level=level, phase=Phase.DECODE, capacity=Extent(3, 3), buckets=(1, 3),
                 backend=forgetting("attention_rows", slice(None)))  # fmt: skip
    found(rig, "is the first of")
