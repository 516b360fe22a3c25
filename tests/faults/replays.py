"""Faults of captured graphs, of the memory they use, and of the merge before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from firstlight.graphs import TapeGraph
from firstlight.graphs.backends.tape import plan as tape_plan
from tests.faults.fault import Fault, Level
from tests.faults.graph_rig import GraphRig, Merge, Mutation, Parts, Replay, examined, merge
from tests.paged_decoder import HIDDEN

_CONTRACT, _PROOF, _SANITIZER = Level.CONTRACT, Level.PROOF, Level.SANITIZER


def _replay(make: Callable[[], Replay]) -> Mutation:
    def mutate(parts: Parts) -> None:
        parts.replay = make()

    return mutate


def _forgetting(slot: str, columns: slice) -> Callable[[], Replay]:
    """The graph reads a copy of the slot that was made at the capture and is never refreshed."""

    def make() -> Replay:
        held: dict[int, Tensor] = {}

        def replay(rig: GraphRig, graph: TapeGraph) -> Tensor:
            part = rig.registry.buffer(slot)[..., columns]
            now = part.clone()
            part.copy_(held.setdefault(id(graph), torch.zeros_like(now)))
            result = TapeGraph.replay(graph)
            part.copy_(now)
            return result

        return replay

    return make


def _stale_bridge() -> Replay:
    """The second half of the graph reads what another graph left in their shared memory."""

    def replay(rig: GraphRig, graph: TapeGraph) -> Tensor:
        others = [g for g in rig.runner.graphs.values() if g is not graph]
        half = len(graph.calls) // 2
        with torch.inference_mode():
            for number, call in enumerate(graph.calls):
                if number == half:
                    for other in others:
                        assert isinstance(other, TapeGraph)
                        for theirs in other.calls[:half]:
                            theirs()
                call()
        return graph.output

    return replay


def _last_output() -> Replay:
    """Returns the output buffer before the graph has written it."""

    def replay(rig: GraphRig, graph: TapeGraph) -> Tensor:
        left = graph.output.clone()
        TapeGraph.replay(graph)
        return left

    return replay


def _padding_returned() -> Replay:
    """The rows that are returned begin one too late."""
    return lambda rig, graph: TapeGraph.replay(graph).roll(-1, 0)


def _beside_the_sink() -> Replay:
    """Something that runs with the graph writes the page beside the sink."""

    def replay(rig: GraphRig, graph: TapeGraph) -> Tensor:
        result = TapeGraph.replay(graph)
        rig.decoder.values[0][1] += 1
        return result

    return replay


def _overlapping(parts: Parts) -> None:
    """Lifetimes of intermediates end too early, so that two that are alive share bytes."""
    real = tape_plan._lifetimes

    def cut(*given: Any) -> tuple[dict[int, int], dict[int, int]]:
        first, last = real(*given)
        return first, {i: min(last[i], first[i] + 6) for i in last}

    parts.patches.append((tape_plan, "_lifetimes", cut))


def _after(change: Callable[[GraphRig], None]) -> Mutation:
    def mutate(parts: Parts) -> None:
        parts.after_capture = change

    return mutate


def _moved_slot(rig: GraphRig) -> None:
    buffers = rig.registry._buffers
    buffers["page_table"] = buffers["page_table"].clone()
    rig.registry._plans.clear()


def _moved_pool(rig: GraphRig) -> None:
    rig.decoder.keys[1] = rig.decoder.keys[1].clone()


def _smaller_graph(rig: GraphRig) -> None:
    graphs = rig.runner._graphs
    graphs[16] = graphs[8]


def _larger_graph(rig: GraphRig) -> None:
    graphs = rig.runner._graphs
    graphs[8] = graphs[16]


def _weights_updated(rig: GraphRig) -> None:
    with torch.no_grad():
        rig.decoder.freq.mul_(1.5)


def _merging(wrong: Merge) -> Mutation:
    def mutate(parts: Parts) -> None:
        parts.merge = wrong

    return mutate


def _text_unwritten(into: Tensor, rows: Tensor, media: bool) -> None:
    if media:  # the graph is thought to look up the embeddings of text by itself
        merge(into, rows, media)


def _row_left_out(into: Tensor, rows: Tensor, media: bool) -> None:
    merge(into[:1], rows[:1], media)
    merge(into[2:], rows[2:], media)


def _row_twice(into: Tensor, rows: Tensor, media: bool) -> None:
    merge(into, rows, media)
    into[1] = rows[0]


def _too_many(into: Tensor, rows: Tensor, media: bool) -> None:
    whole = into.as_strided((len(rows) + 1, rows.shape[1]), into.stride())
    merge(whole, torch.cat([rows, rows[:1]]), media)


def _encoder_nan(into: Tensor, rows: Tensor, media: bool) -> None:
    rows[0, 0] = float("nan")
    merge(into, rows, media)


def _checked_write(change: Callable[[Tensor], Tensor]) -> Mutation:
    def mutate(parts: Parts) -> None:
        rigs: list[GraphRig] = []
        parts.after_capture = rigs.append

        def write(into: Tensor, rows: Tensor, media: bool) -> None:
            rigs[-1].registry.write("input_embeds", change(rows), 0)

        parts.merge = write

    return mutate


FAULTS = (
    Fault(
        "an extra input dropped at replay",
        "Eager reads the DeepStack segment of the batch, the graph one that nobody fills.",
        "sglang 33726",
        examined(_replay(_forgetting("input_embeds", slice(HIDDEN, HIDDEN + 8)))),
        {_PROOF: "segment deepstack.0", _SANITIZER: ""},
    ),
    Fault(
        "positions of the capture",
        "The graph replays with the positions that it was captured with.",
        "sglang 24361 (stale positions)",
        examined(_replay(_forgetting("positions", slice(None)))),
        {_PROOF: "positions, row 1 of 3", _SANITIZER: ""},
    ),
    Fault(
        "a page table of the capture",
        "The graph replays with the page table that it was captured with.",
        "sglang 35247, 37043",
        examined(_replay(_forgetting("page_table", slice(None)))),
        {_PROOF: "", _SANITIZER: ""},
    ),
    Fault(
        "another graph in the middle",
        "Between two pieces of a graph another one runs in the memory that they share.",
        "sglang 37606, 37448, 30584",
        examined(_replay(_stale_bridge)),
        {_PROOF: "", _SANITIZER: ""},
    ),
    Fault(
        "the output of the run before",
        "What is returned was read before the graph had written it.",
        "sglang 30584; TensorRT-LLM 16609",
        examined(_replay(_last_output)),
        {_PROOF: "", _SANITIZER: ""},
    ),
    Fault(
        "padding returned as output",
        "The rows that are sliced off the output are the wrong ones.",
        "omni 1378 (every replay diverges; cause not published)",
        examined(_replay(_padding_returned)),
        {_PROOF: "", _SANITIZER: ""},
    ),
    Fault(
        "a write beside the sink",
        "A replay changes the page beside the one where padding goes.",
        "vllm 43810",
        examined(_replay(_beside_the_sink)),
        {_PROOF: "beside the sink", _SANITIZER: "the sink's neighbour"},
    ),
    Fault(
        "intermediates that overlap",
        "The memory plan gives two intermediates that are alive together the same bytes.",
        "sglang 37606, 37448",
        examined(_overlapping),
        {_PROOF: "", _SANITIZER: "scratch_overlap"},
    ),
    Fault(
        "a slot that moved",
        "A buffer is allocated anew after the capture; the graph reads the old one.",
        "sglang 37043",
        examined(_after(_moved_slot)),
        {_PROOF: "", _SANITIZER: "stale_address: slot page_table"},
    ),
    Fault(
        "a pool that moved",
        "The KV memory is allocated anew after the capture; the graph writes to the old one.",
        "sglang 37043, 30474",
        examined(_after(_moved_pool)),
        {_PROOF: "", _SANITIZER: "stale_address: pool keys 1"},
    ),
    Fault(
        "the graph of a smaller bucket",
        "A batch replays the graph of a smaller bucket than it was padded for.",
        "variant of sglang 37561 (ranks in different buckets)",
        examined(_after(_smaller_graph)),
        {_PROOF: "raised IndexError"},
    ),
    Fault(
        "the graph of a larger bucket",
        "A batch replays the graph of a larger bucket, whose last rows hold an older batch.",
        "variant of sglang 37561 (ranks in different buckets)",
        examined(_after(_larger_graph)),
        {_PROOF: "gives 16 rows, not 8"},
    ),
    Fault(
        "weights changed under a graph",
        "A weight is changed in place; what was computed from it at the capture is not.",
        "variant of sglang 37043",
        examined(_after(_weights_updated)),
        {_SANITIZER: "weight_written"},
    ),
    Fault(
        "text rows that nobody writes",
        "A text-only batch leaves the rows alone, and the last picture's are read as text.",
        "sglang 29018; omni 1378",
        examined(_merging(_text_unwritten)),
        {_SANITIZER: "row_unwritten: slot input_embeds"},
    ),
    Fault(
        "a row left out by the merge",
        "One row of a batch keeps what an earlier batch wrote there.",
        "variant of sglang 29018",
        examined(_merging(_row_left_out)),
        {_SANITIZER: "rows 1 of"},
    ),
    Fault(
        "a row written twice by the merge",
        "Two writers hold the same row for theirs; the later one wins.",
        "vllm 57740 (case H08); sglang 37968",
        examined(_merging(_row_twice)),
        {_SANITIZER: "row_written_twice: slot input_embeds"},
    ),
    Fault(
        "a row too many",
        "The merge writes a row more than the batch has, into padding.",
        "sglang 32404; vllm 55546",
        examined(_merging(_too_many)),
        {_SANITIZER: "padding_not_neutral: slot input_embeds"},
    ),
    Fault(
        "a NaN from an encoder",
        "A row comes out of the vision tower with a NaN.",
        "vllm 57136 (case H01)",
        examined(_merging(_encoder_nan)),
        {_SANITIZER: "nan_input: slot input_embeds"},
    ),
    Fault(
        "rows of another dtype",
        "Rows of double precision are written into a slot of single precision.",
        "sglang 25462, 36595",
        examined(_checked_write(lambda rows: rows.double())),
        {_CONTRACT: "torch.float64"},
    ),
    Fault(
        "rows of the hidden size",
        "Rows of hidden_size columns are written into a slot as wide as the model declares.",
        "sglang 33726; 36595",
        examined(_checked_write(lambda rows: rows[:, :HIDDEN])),
        {_CONTRACT: "the slot 'input_embeds' takes"},
    ),
)
