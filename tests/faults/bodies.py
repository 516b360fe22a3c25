"""Faults of bodies: what a model's or an adapter's author gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from firstlight.graphs import BodyInputs
from firstlight.graphs.proof import Placed
from tests.faults.decoder import Decoder, Metadata, Pages
from tests.faults.fault import Caught, Fault, Level
from tests.faults.graph_rig import Parts, examined, merge
from tests.paged_decoder import EXTRA, HIDDEN

_CAPTURE, _PROOF, _SANITIZER = Level.CAPTURE, Level.PROOF, Level.SANITIZER


class OneStack(Decoder):
    """The write of the second segment was forgotten; eager lacks it too."""

    def stack(self, layer: int, rows: Tensor) -> Tensor:
        return super().stack(0, rows) if layer == 0 else torch.zeros(rows.shape[0], HIDDEN)


class TextBranch(Decoder):
    """Chooses on the host whether there is media; captured when there was none."""

    media = False

    def stack(self, layer: int, rows: Tensor) -> Tensor:
        none = torch.zeros(rows.shape[0], HIDDEN)
        return super().stack(layer, rows) if TextBranch.media else none


def _text_branch(parts: Parts) -> None:
    def telling(into: Tensor, rows: Tensor, media: bool) -> None:
        TextBranch.media = media
        merge(into, rows, media)

    TextBranch.media = False
    parts.decoder, parts.merge = TextBranch, telling


class NoPlane(Decoder):
    """Token types are declared, passed, and not read."""

    def enter(self, inputs: BodyInputs) -> Tensor:
        none = {"types": torch.zeros_like(inputs.planes["types"])}
        return super().enter(replace(inputs, planes={**inputs.planes, **none}))


class OnePosition(Decoder):
    """Positions are taken as one-dimensional: height and width of a picture are lost."""

    def turn(self, positions: Tensor) -> Tensor:
        return super().turn(positions[:1].expand_as(positions))


class Centred(Decoder):
    """A statistic over all rows, padding included, e.g. a scale for quantisation."""

    def enter(self, inputs: BodyInputs) -> Tensor:
        return super().enter(inputs) - inputs.embeds[:, :HIDDEN].mean(0)


class UnmaskedValues(Decoder):
    """Values that are not seen get the weight 0 and are left as they are."""

    def seen_values(self, values: Tensor, seen: Tensor) -> Tensor:
        return values


class HostRead(Decoder):
    """Asks the device how many rows are live."""

    def leave(self, x: Tensor, meta: Metadata) -> Tensor:
        live = int(meta.live.item())
        return torch.cat([x[:live], torch.zeros_like(x[live:])])


class BooleanIndex(Decoder):
    """Adds a segment to the rows of pictures alone, found by a mask."""

    def stack(self, layer: int, rows: Tensor) -> Tensor:
        pictured = rows[:, HIDDEN:].ne(0).any(1)
        added = torch.zeros(rows.shape[0], HIDDEN)
        added[pictured] = super().stack(layer, rows[pictured])
        return added


class BakedOffset(Decoder):
    """Uses a number that the planner leaves on the host: it becomes a constant of the graph."""

    start = 0

    def turn(self, positions: Tensor) -> Tensor:
        return super().turn(positions) - BakedOffset.start * self.freq.sum()


def _baked_offset(parts: Parts) -> None:
    class Planner(Pages):
        def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
            BakedOffset.start = requests[0].start
            return super().values(requests)

    BakedOffset.start = 0
    parts.decoder, parts.memory = BakedOffset, Planner


_FREQUENCIES = torch.tensor([1.0, 0.3, 0.1])


class Temporary(Decoder):
    """Uses a tensor that is no weight, slot or pool."""

    def turn(self, positions: Tensor) -> Tensor:
        return (positions.float() * _FREQUENCIES[:, None]).sum(0)[:, None]


class InPlace(Decoder):
    """Clamps positions in place: they are the slot itself."""

    def turn(self, positions: Tensor) -> Tensor:
        return super().turn(positions.clamp_(max=9))


class StreamInPlace(Decoder):
    """Adds to the stream in place while it is still a view of ``input_embeds``."""

    def enter(self, inputs: BodyInputs) -> Tensor:
        stream = inputs.embeds[:, :HIDDEN]
        stream += self.types(inputs.planes["types"])
        added: Tensor = self.aux(inputs.planes["layer_embeds"])
        return stream + added


class StateOnModule(Decoder):
    """Counts its steps in a buffer that the output depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def enter(self, inputs: BodyInputs) -> Tensor:
        assert isinstance(self.steps, Tensor)
        self.steps.add_(1)
        return super().enter(inputs) * self.steps


class BeyondBucket(Decoder):
    """Reads the slot's rows behind the bucket: sized by capacity, not by the bucket."""

    def enter(self, inputs: BodyInputs) -> Tensor:
        rows, width = inputs.embeds.shape
        whole = inputs.embeds.as_strided((rows + 1, width), (width, 1))
        return super().enter(inputs) + whole[rows, :HIDDEN]


class PartlyWritten(Decoder):
    """A bridge between two pieces of which the last row is never filled."""

    def leave(self, x: Tensor, meta: Metadata) -> Tensor:
        bridge = torch.empty_like(x)
        bridge[:-1] = x[:-1]
        return super().leave(x + bridge.mean(0), meta)


class NegativePadding(Decoder):
    """Sends rows of no request to location -1, which is the last token slot."""

    def attend(self, layer: int, x: Tensor, turn: Tensor, meta: Metadata) -> Tensor:
        to = torch.where(meta.write_locations == 0, -1, meta.write_locations)
        return super().attend(layer, x, turn, replace(meta, write_locations=to))


class SwappedStacks(Decoder):
    """Segments of equal width are read in the wrong order."""

    def stack(self, layer: int, rows: Tensor) -> Tensor:
        tokens, stacks = rows[:, :HIDDEN], rows[:, HIDDEN:]
        return super().stack(layer, torch.cat([tokens, stacks.roll(EXTRA, 1)], dim=1))


def _examined(decoder: type[Decoder]) -> Callable[[], Caught]:
    def mutate(parts: Parts) -> None:
        parts.decoder = decoder

    return examined(mutate)


def _fault(
    id: str, what: str, seen_at: str, decoder: type[Decoder], caught_by: dict[Level, str]
) -> Fault:
    return Fault(id, what, seen_at, _examined(decoder), caught_by)


FAULTS = (
    _fault(
        "a segment that is never added",
        "The body adds one DeepStack segment and forgets the other, in eager runs too.",
        "sglang 33726; vllm 43617",
        OneStack,
        {_PROOF: "segment deepstack.1"},
    ),
    Fault(
        "a text branch baked",
        "The body was captured while there was no media, and holds the branch for text.",
        "sglang 30765; vllm 35917; sglang 30868",
        examined(_text_branch),
        {_PROOF: "segment deepstack.0", _SANITIZER: "baked_constant"},
    ),
    _fault(
        "a plane that is not read",
        "Token types are declared and filled, and the body does not look at them.",
        "vllm 43716, 43776",
        NoPlane,
        {_PROOF: "plane types"},
    ),
    _fault(
        "positions taken as one-dimensional",
        "The body uses the first of three position rows for all three.",
        "variant of case H35 (M-RoPE)",
        OnePosition,
        {_PROOF: "positions, row 1 of 3"},
    ),
    _fault(
        "a statistic over padding",
        "Live rows depend on a mean over all rows of the bucket.",
        "sglang 35588; tokenspeed 741",
        Centred,
        {_PROOF: "padding rows", _SANITIZER: "padding_read: slot input_embeds"},
    ),
    _fault(
        "a NaN behind a weight of zero",
        "Masked values are multiplied by zero instead of being replaced.",
        "vllm 57136 (case H01); tokenspeed 741",
        UnmaskedValues,
        {_SANITIZER: ""},
    ),
    _fault(
        "a host read",
        "The body asks the device for the number of live rows.",
        "sglang 26082, 34995",
        HostRead,
        {_CAPTURE: "value on the host", _SANITIZER: "host_read"},
    ),
    _fault(
        "a boolean index",
        "A segment is added to the rows that a mask picks: a shape that depends on data.",
        "sglang 26082; transformers' DeepStack",
        BooleanIndex,
        {_CAPTURE: "aten", _SANITIZER: "dynamic_shape"},
    ),
    Fault(
        "a constant from live data",
        "The body uses a number that the planner left on the host, and the graph keeps it.",
        "sglang 32606, 34043",
        examined(_baked_offset),
        {_PROOF: "", _SANITIZER: "baked_constant"},
    ),
    _fault(
        "a temporary that nobody owns",
        "The graph would read a tensor that no module, slot or pool keeps alive.",
        "sglang 37606, 37448",
        Temporary,
        {_CAPTURE: "", _SANITIZER: "unowned_tensor"},
    ),
    _fault(
        "a slot changed by the body",
        "Positions are clamped in place, in the slot that the next step reads.",
        "sglang 28386, 28870",
        InPlace,
        {_SANITIZER: "slot_written: slot positions"},
    ),
    _fault(
        "a row changed by the body",
        "The stream is added to in place while it is a view of the rows.",
        "sglang 28386, 28870",
        StreamInPlace,
        {_SANITIZER: "slot_written: slot input_embeds"},
    ),
    _fault(
        "state on a module",
        "The body counts its steps in a buffer, and its output depends on the count.",
        "sglang 32606; case H35",
        StateOnModule,
        {_PROOF: "", _SANITIZER: "weight_written"},
    ),
    _fault(
        "rows beyond the bucket",
        "The body reads one row more than its bucket has.",
        "vllm 10891 (case H05)",
        BeyondBucket,
        {_PROOF: "rows beyond the bucket", _SANITIZER: "beyond_bucket_read"},
    ),
    Fault(
        "a bridge filled in part",
        "An intermediate is read of which one row was never written.",
        "sglang 30584; TensorRT-LLM 16609",
        _examined(PartlyWritten),
        {_SANITIZER: "stale_intermediate"},
        by_chance=frozenset({_PROOF}),
    ),
    _fault(
        "padding stored at -1",
        "Rows of no request are stored at location -1, the last token slot of the pool.",
        "vllm 43810 (case H04)",
        NegativePadding,
        {_PROOF: "units outside of every batch", _SANITIZER: "the last page"},
    ),
)

UNCAUGHT = (
    _fault(
        "segments read in another order",
        "The body reads two segments of equal width in the wrong order, in eager runs too.",
        "none known; stays possible",
        SwappedStacks,
        {},
    ),
)
