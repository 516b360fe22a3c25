"""Patch embedding of towers that receive one patch per row: a convolution that is one product."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv3d, linear

from firstlight.models.fuse.parity import compare
from firstlight.models.fuse.report import FuseReport

_PATCHES = 5


class PatchLinear(nn.Module):
    """A ``Conv3d`` whose kernel covers its whole input, as one matrix product.

    On a CPU the convolution takes three to four times as long, in float32 and in bfloat16, for 64
    to 1,024 patches of 2 x 16 x 16 pixels (one thread).
    """

    def __init__(self, conv: nn.Conv3d) -> None:
        super().__init__()
        # Under the old names: towers read the dtype of `weight`, and checkpoints know both.
        self.weight = conv.weight
        self.bias = conv.bias

    @staticmethod
    def takes(module: object) -> bool:
        """Whether each output sees exactly one kernel of input: no overlap, padding or groups."""
        return (
            isinstance(module, nn.Conv3d)
            and tuple(module.stride) == tuple(module.kernel_size)
            and module.padding in (0, (0, 0, 0))
            and module.dilation == (1, 1, 1)
            and module.groups == 1
        )

    def forward(self, patches: Tensor) -> Tensor:
        """``[n, channels, *kernel]`` to ``[n, out, 1, 1, 1]``; a larger input is convolved."""
        if patches.shape[1:] != self.weight.shape[1:]:
            return conv3d(patches, self.weight, self.bias, stride=self.weight.shape[2:])
        rows = linear(patches.flatten(1), self.weight.flatten(1), self.bias)
        return rows[:, :, None, None, None]


@torch.no_grad()
def fuse_patches(model: nn.Module, report: FuseReport) -> None:
    """Swap the patch convolutions of a vision-language model's towers in place.

    Only under a parent that reshapes its input to single patches: its forward is run on random
    patches before and after, and the convolution stays where the outputs differ or it fails.

    Args:
        model: the whole model, or its tower.
        report: gets what was swapped, or why not.
    """
    for parent in list(model.modules()):
        for name, conv in list(parent.named_children()):
            if isinstance(conv, nn.Conv3d) and PatchLinear.takes(conv):
                _swap(parent, name, conv, report)


def _swap(parent: nn.Module, name: str, conv: nn.Conv3d, report: FuseReport) -> None:
    who = type(parent).__name__
    generator = torch.Generator().manual_seed(0)
    size = conv.weight[0].numel()
    patches = torch.randn(_PATCHES, size, generator=generator).to(conv.weight)
    try:
        expected = parent(patches)
        setattr(parent, name, PatchLinear(conv))
        found = compare(lambda: expected, lambda: parent(patches))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    if found is None:
        report.count(who)
    else:
        setattr(parent, name, conv)
        report.left[who] = found
