"""All fusing of a model, in the order in which the parts must come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from firstlight.models.adapter import Adapter
from firstlight.models.fuse.decoder import fuse_decoder
from firstlight.models.fuse.embedding import can_share, share_head
from firstlight.models.fuse.kit import Kit, NativeLinear, round_rows
from firstlight.models.fuse.linear import has_faster_layout
from firstlight.models.fuse.patches import fuse_patches
from firstlight.models.fuse.report import FuseReport
from firstlight.models.fuse.rounding import head_format, round_layer
from firstlight.models.fuse.tail import fuse_tail
from firstlight.models.fuse.towers import fuse_towers

# A head tied to an embedding that cannot look its rows up there is needed twice once it is packed:
# up to 64 MiB in bfloat16.
_TIED_HEAD = 1 << 25


def fuse_model(
    adapter: Adapter, kit: Kit | None = None, freed: Callable[[], None] = lambda: None
) -> FuseReport:
    """Swap in place what has a faster equal, in the decoder, its LM head and the towers.

    Args:
        kit: what the replacements are made of; without it, of torch's kernels.
        freed: called whenever weights were freed, layer by layer.
    """
    report = FuseReport()
    kit = Kit() if kit is None else kit
    layers = list(getattr(adapter.decoder, "layers", ()))
    if layers:
        # First, as the check of its replacement runs the whole decoder.
        _round(layers[-1], report, kit)
    report.one_row_per_request = fuse_tail(adapter, report, kit)

    def before(index: int) -> None:
        freed()
        if index + 1 < len(layers):
            _round(layers[index], report, kit)

    fuse_decoder(adapter.decoder, adapter.position_rank, report, kit, before)
    freed()
    _pack_head(adapter, report, kit)
    freed()
    fuse_patches(adapter.model, report)
    fuse_towers(adapter, report, kit)
    if kit.rounds_rows:
        report.rounded_inputs = round_rows(adapter.model)
    freed()
    return report


def _round(layer: nn.Module, report: FuseReport, kit: Kit) -> None:
    if kit.kernels is not None and kit.format is not None:
        round_layer(layer, kit.kernels, kit.format, report)


@torch.no_grad()
def _pack_head(adapter: Adapter, report: FuseReport, kit: Kit) -> None:
    head = adapter.model.get_output_embeddings()
    if type(head) is not nn.Linear or not (kit.takes(head.weight) or has_faster_layout(head)):
        return
    if kit.kernels is not None and kit.format is not None:
        kit = replace(kit, format=head_format(head.weight, kit.kernels, kit.format))
    embedding = adapter.model.get_input_embeddings()
    tied = head.weight is getattr(embedding, "weight", None)
    shared = tied and kit.takes(head.weight) and can_share(embedding, kit.format)
    if tied and not shared and head.weight.numel() > _TIED_HEAD:
        report.left["LM head"] = f"it shares {head.weight.numel()} weights with the embedding"
        return
    packed = kit.linear([head])
    adapter.model.set_output_embeddings(packed)
    report.count("LM head")
    if shared and isinstance(packed, NativeLinear):
        found = share_head(adapter.model, embedding, packed)
        if found is None:
            report.count("embedding")
        else:
            report.left["embedding"] = found
