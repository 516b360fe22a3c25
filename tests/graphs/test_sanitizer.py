"""The sanitizer names each fault: what it is, where, in which slot; and is silent on health."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from firstlight.errors import CaptureError, HostReadError
from firstlight.graphs import BodyInputs
from firstlight.graphs.sanitizer import FindingKind, TrackedRegistry
from firstlight.graphs.slot import Axis, Dim, Extent, Meaning, SlotSpec
from tests.graphs.decoder import HIDDEN, Decoder
from tests.graphs.sanitized import PAGE, SanitizedRig, line_of, mutated

K = FindingKind
UNOWNED = torch.zeros(HIDDEN)


@pytest.mark.parametrize("width", [HIDDEN, 2 * HIDDEN])
@pytest.mark.parametrize(("n", "start"), [(8, 0), (5, 0), (3, 7), (12, 0), (20, 0)])
def test_a_healthy_decoder_gives_no_finding(width: int, n: int, start: int) -> None:
    rig = SanitizedRig(width=width)
    if start:
        rig.serve(start)
    rig.serve(n, start=start)
    assert str(rig.report) == ""


def test_what_is_served_is_what_a_plain_runner_serves() -> None:
    rig = SanitizedRig()
    first = rig.serve(7)
    plain = SanitizedRig()
    plain.runner.__class__ = plain.runner.__class__.__bases__[0]  # the same parts, unchecked
    assert torch.equal(first, plain.serve(7))
    pools = [(a.keys, b.keys) for a, b in zip(rig.decoder.stack, plain.decoder.stack, strict=True)]
    assert all(torch.equal(a[PAGE:], b[PAGE:]) for a, b in pools)


# What bodies do wrong


def test_a_body_that_averages_over_padding_is_found() -> None:
    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        centre = inputs.embeds.mean(0)
        return decoder.forward(inputs) - centre

    rig = mutated(change)
    rig.serve(5)
    finding = rig.only(K.PADDING_READ)
    assert (finding.subject, finding.op) == ("slot input_embeds", "aten.mean.dim")
    assert line_of(finding) == "centre = inputs.embeds.mean(0)"
    assert "padding rows 5-7" in finding.detail


def test_a_body_that_reads_beyond_the_bucket_is_found() -> None:
    rig: SanitizedRig

    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        whole = rig.registry.buffer("input_embeds")
        return decoder.forward(inputs) + whole[-1]

    rig = mutated(change)
    rig.serve(8)
    finding = rig.only(K.BEYOND_BUCKET_READ)
    assert finding.subject == "slot input_embeds"
    assert "rows 8-23 beyond the bucket" in finding.detail
    assert line_of(finding) == "return decoder.forward(inputs) + whole[-1]"


def test_an_index_slot_read_beyond_the_bucket_is_named_and_crashes_nothing() -> None:
    rig: SanitizedRig
    table = torch.randn(64, HIDDEN)

    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        rows = table[rig.registry.buffer("positions")[0, :24]]
        return decoder.forward(inputs) + rows[: inputs.embeds.shape[0]]

    rig = mutated(change)
    rig.owned.add(table, "weight table", frozen=True)
    rig.serve(6)
    finding = rig.only(K.INDEX_OUT_OF_RANGE)
    assert (finding.subject, finding.op) == ("slot positions", "aten.index.Tensor")
    assert line_of(finding) == 'rows = table[rig.registry.buffer("positions")[0, :24]]'


def test_an_intermediate_that_is_written_in_part_is_found() -> None:
    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        x = decoder.forward(inputs)
        out = torch.empty_like(x)
        out[1:] = x[1:]
        return out * 2

    rig = mutated(change)
    rig.serve(8)
    finding = rig.only(K.STALE_INTERMEDIATE)
    assert finding.subject == "intermediates"
    assert "NaN in live rows 0" in finding.detail
    assert line_of(finding) in ("out = torch.empty_like(x)", "out[1:] = x[1:]", "return out * 2")


def test_an_intermediate_that_nobody_writes_is_found_at_capture() -> None:
    rig = mutated(lambda decoder, inputs: decoder.forward(inputs) + torch.empty(HIDDEN))
    rig.runner.capture(8)
    assert rig.only(K.STALE_INTERMEDIATE).op == "aten.add.Tensor"


def test_a_body_that_stores_padding_in_the_last_page_is_found() -> None:
    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        at = inputs.attention
        assert isinstance(at, Tensor)
        other = torch.where(at == 0, -1, at)
        return decoder.forward(BodyInputs(inputs.embeds, inputs.positions, inputs.planes, other))

    rig = mutated(change)
    rig.serve(5)
    subjects = [f.subject for f in rig.report if f.kind is K.FOREIGN_WRITE]
    assert set(subjects) == {f"pool {kind} {i}" for kind in ("keys", "values") for i in (0, 1)}
    found = next(f for f in rig.report if f.op)
    assert (found.kind, found.op) == (K.FOREIGN_WRITE, "aten.index_put_.default")
    assert "page 15, the last page, token 3 changed" in found.detail
    assert found.where.rpartition(":")[0].endswith("tests/graphs/decoder.py")


def test_a_body_that_stores_a_page_too_far_is_found_twice() -> None:
    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        at = inputs.attention
        assert isinstance(at, Tensor)
        return decoder.forward(
            BodyInputs(inputs.embeds, inputs.positions, inputs.planes, at + PAGE)
        )

    rig = mutated(change)
    rig.serve(8)
    assert {K.FOREIGN_WRITE, K.MEMORY_UNWRITTEN} <= rig.kinds()


def test_a_body_that_writes_a_slot_is_found_at_capture() -> None:
    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        inputs.positions.clamp_(max=3)
        return decoder.forward(inputs)

    rig = mutated(change)
    rig.runner.capture(8)
    finding = rig.only(K.SLOT_WRITTEN)
    assert (finding.subject, finding.op) == ("slot positions", "aten.clamp_.default")
    assert line_of(finding) == "inputs.positions.clamp_(max=3)"


def test_state_on_a_module_is_found() -> None:
    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        decoder.stack[0].norm.bias.add_(1)
        return decoder.forward(inputs)

    rig = mutated(change)
    rig.serve(8)
    at_capture = next(f for f in rig.report if f.kind is K.WEIGHT_WRITTEN and f.op)
    assert at_capture.subject == "weight layers.0.norm.bias"
    assert line_of(at_capture) == "decoder.stack[0].norm.bias.add_(1)"
    assert K.NOT_REPEATABLE in rig.kinds()


def test_a_host_read_is_a_finding_with_its_line() -> None:
    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        return decoder.forward(inputs) * float(inputs.embeds[0, 0])

    rig = mutated(change)
    with pytest.raises(HostReadError):
        rig.runner.capture(8)
    finding = rig.only(K.HOST_READ)
    assert line_of(finding) == "return decoder.forward(inputs) * float(inputs.embeds[0, 0])"


@pytest.mark.parametrize(
    ("refused", "kind"),
    [
        (lambda x: x[x[:, 0] > 0], K.DYNAMIC_SHAPE),
        (lambda x: x + UNOWNED, K.UNOWNED_TENSOR),
        (lambda x: x + torch.rand(HIDDEN), K.CAPTURE_REFUSED),
    ],
)
def test_what_no_graph_can_hold_is_a_finding(
    refused: Callable[[Tensor], Tensor], kind: FindingKind
) -> None:
    rig = mutated(lambda decoder, inputs: refused(decoder.forward(inputs)))
    with pytest.raises(CaptureError):
        rig.runner.capture(8)
    assert rig.only(kind).where.startswith(__file__)


def test_nan_of_the_models_own_is_told_from_poison() -> None:
    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        x = decoder.forward(inputs)
        return (x - 100).sqrt()

    rig = mutated(change)
    rig.serve(8)
    assert rig.kinds() == {K.NAN_OUTPUT}
    assert line_of(rig.only(K.NAN_OUTPUT)) == "return (x - 100).sqrt()"


# What is baked into a capture


def test_a_number_read_from_a_slot_behind_torchs_back_is_found_at_capture() -> None:
    rig: SanitizedRig

    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        return decoder.forward(inputs) * (1 + float(shared[0]))

    rig = mutated(change)
    shared = rig.registry.buffer("positions")[0].numpy()
    rig.runner.capture(8)
    finding = rig.only(K.BAKED_CONSTANT)
    assert finding.op == "aten.mul.Tensor"
    assert line_of(finding) == "return decoder.forward(inputs) * (1 + float(shared[0]))"


def test_a_length_that_a_planner_leaves_on_the_host_is_found_when_a_batch_has_another() -> None:
    lengths = [8]

    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        scale = torch.tensor([float(lengths[-1])])
        return decoder.forward(inputs) * scale

    rig = mutated(change)
    rig.serve(8)
    assert str(rig.report) == ""
    lengths.append(6)
    rig.serve(6)
    finding = rig.only(K.BAKED_CONSTANT)
    assert line_of(finding) == "scale = torch.tensor([float(lengths[-1])])"


def test_a_branch_on_host_state_is_found() -> None:
    lengths = [8]

    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        x = decoder.forward(inputs)
        return x.relu() if lengths[-1] > 7 else x.sigmoid()

    rig = mutated(change)
    rig.serve(8)
    lengths.append(6)
    rig.serve(6)
    assert "relu" in rig.only(K.BAKED_CONSTANT).detail


# What merges and metadata do wrong


def test_a_row_that_the_merge_forgets_is_found() -> None:
    def merge(into: Tensor, rows: Tensor) -> None:
        into[:2].copy_(rows[:2])
        into[3:].copy_(rows[3:])

    rig = SanitizedRig()
    rig.serve(5, merge=merge)
    finding = rig.only(K.ROW_UNWRITTEN)
    assert finding.subject == "slot input_embeds"
    assert "rows 2 of 5 live ones" in finding.detail


def test_a_row_that_nobody_wrote_is_served_as_a_plain_runner_would() -> None:
    """Not as poison: the answer must stay the one that is looked into."""

    def merge(into: Tensor, rows: Tensor) -> None:
        into[:2].copy_(rows[:2])

    rig = SanitizedRig()
    rig.serve(5)
    held = rig.registry.buffer("input_embeds")[2:5].clone()
    assert not rig.serve(5, merge=merge).isnan().any()
    assert torch.equal(rig.registry.buffer("input_embeds")[2:5], held)


def test_a_segment_that_the_merge_forgets_in_the_first_columns_is_named() -> None:
    rig = SanitizedRig(width=2 * HIDDEN)
    rig.serve(4, merge=lambda into, rows: into[:, HIDDEN:].copy_(rows[:, HIDDEN:]))
    assert rig.only(K.ROW_UNWRITTEN).detail.endswith("in segment tokens")


def test_a_row_that_the_merge_writes_twice_is_found_with_its_line() -> None:
    def merge(into: Tensor, rows: Tensor) -> None:
        into.copy_(rows)
        into[1:3] = rows[1:3]

    rig = SanitizedRig()
    rig.serve(5, merge=merge)
    finding = rig.only(K.ROW_WRITTEN_TWICE)
    assert "rows 1-2 were written more than once" in finding.detail
    assert line_of(finding) == "into[1:3] = rows[1:3]"


@pytest.mark.parametrize(
    "write",
    [
        lambda into, rows: torch.add(rows, 0, out=into),
        lambda into, rows: into.index_copy_(0, torch.arange(len(rows)), rows),
        lambda into, rows: into.index_put_((torch.arange(len(rows)),), rows),
        lambda into, rows: into.__setitem__(torch.arange(len(rows)), rows),
        lambda into, rows: into.masked_scatter_(torch.ones(rows.shape, dtype=torch.bool), rows),
        lambda into, rows: [part.copy_(r) for part, r in zip(into.split(1), rows, strict=True)],
        lambda into, rows: into.view(-1).copy_(rows.view(-1)),
    ],
)
def test_each_way_of_writing_counts_once(write: Callable[[Tensor, Tensor], object]) -> None:
    rig = SanitizedRig()
    rig.serve(5, merge=lambda into, rows: write(into, rows))
    assert str(rig.report) == ""
    rig.serve(5, merge=lambda into, rows: [write(into, rows) for _ in range(2)])
    assert rig.kinds() == {K.ROW_WRITTEN_TWICE}


def test_nan_that_an_encoder_writes_is_told_from_a_row_that_is_missing() -> None:
    def merge(into: Tensor, rows: Tensor) -> None:
        rows[3, 0] = float("nan")
        into.copy_(rows)

    rig = SanitizedRig()
    rig.serve(5, merge=merge)
    assert "rows 3" in rig.only(K.NAN_INPUT).detail
    assert K.ROW_UNWRITTEN not in rig.kinds()


def test_padding_that_no_policy_resets_is_found() -> None:
    class Lazy(TrackedRegistry):
        def fill(self, values: Mapping[str, Tensor | None], live: Extent, padded: Extent) -> None:
            padding = self.buffer("positions")[:, live.tokens : padded.tokens]
            left = padding.clone()
            super().fill(values, live, padded)
            padding.copy_(left)

    rig = SanitizedRig(registry=Lazy)
    rig.serve(5)
    finding = rig.only(K.PADDING_NOT_NEUTRAL)
    assert finding.subject == "slot positions"
    assert "padding rows 5-7 hold what an earlier batch left" in finding.detail


def test_a_merge_that_writes_past_the_live_rows_is_found() -> None:
    rig = SanitizedRig()
    rig.serve(5, merge=lambda into, rows: rig.registry.buffer("input_embeds")[:7].fill_(1))
    assert "padding rows 5-6" in rig.only(K.PADDING_NOT_NEUTRAL).detail


def test_a_write_behind_a_slots_buffer_is_found() -> None:
    def merge(into: Tensor, rows: Tensor) -> None:
        into.copy_(rows)
        whole = rig.registry.buffer("input_embeds")
        end = whole.storage_offset() + whole.numel()
        whole.as_strided((2,), (1,), end).fill_(0)

    rig = SanitizedRig()
    rig.serve(5, merge=merge)
    finding = rig.only(K.WRITE_OUTSIDE)
    assert finding.subject == "slot input_embeds"
    assert "elements 0-1 behind the buffer" in finding.detail


def put(name: str, row: int, value: int) -> Callable[[dict[str, Tensor | None]], None]:
    """Metadata with one wrong entry."""

    def change(values: dict[str, Tensor | None]) -> None:
        tensor = values[name]
        assert tensor is not None
        tensor[..., row] = value

    return change


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1, "negative indices, down to -1"),
        (2, "live rows 4 would be stored in the sink page"),
        (5, "token slots 5 are written by several rows"),
    ],
)
def test_a_wrong_write_location_is_found(value: int, words: str) -> None:
    rig = SanitizedRig()
    rig.serve(5, change=put("write_locations", 4, value))
    details = [f.detail for f in rig.report if f.kind is K.BAD_INDEX]
    assert any(words in detail for detail in details), details


def test_a_slot_that_is_never_computed_is_found() -> None:
    spec = SlotSpec(
        "mrope", (3, Dim.T), torch.int64, Axis.TOKENS, meaning=Meaning.INDEX, copied=False
    )
    rig = SanitizedRig(extra=(spec,))
    rig.serve(5)
    assert rig.only(K.ROW_UNWRITTEN).subject == "slot mrope"
