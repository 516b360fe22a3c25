"""All fusing of a model, in the order in which the parts must come."""

from __future__ import annotations

from firstlight.models.adapter import Adapter
from firstlight.models.fuse.decoder import fuse_decoder
from firstlight.models.fuse.patches import fuse_patches
from firstlight.models.fuse.report import FuseReport
from firstlight.models.fuse.tail import fuse_tail


def fuse_model(adapter: Adapter) -> FuseReport:
    """Swap in place what has a faster equal, in the decoder and in the towers."""
    report = FuseReport()
    report.one_row_per_request = fuse_tail(adapter, report)
    fuse_decoder(adapter.decoder, adapter.position_rank, report)
    fuse_patches(adapter.model, report)
    return report
