"""An artifact's identity: of the content, and of what the processor made of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from firstlight.media import Artifact

DIGEST = "sha256:" + "1" * 64
PIXELS = torch.arange(24.0).reshape(2, 3, 4)
TENSORS: Mapping[str, Tensor] = {"pixel_values": PIXELS, "grid": torch.tensor([[1, 2]])}


def artifact(
    tensors: Mapping[str, Tensor] = TENSORS, size: tuple[int, int] = (3, 4), digest: str = DIGEST
) -> Artifact:
    return Artifact(tensors, size, digest)


def test_equal_artifacts_have_one_identity_that_holds_the_whole_digest() -> None:
    copied = {name: tensor.clone() for name, tensor in reversed(list(TENSORS.items()))}
    assert artifact(copied).identity == artifact().identity
    assert DIGEST in artifact().identity


@pytest.mark.parametrize(
    "other",
    [
        artifact(digest="sha256:" + "2" * 64),
        artifact(size=(4, 3)),
        artifact({**TENSORS, "pixel_values": PIXELS + (PIXELS == 23)}),
        artifact({**TENSORS, "pixel_values": PIXELS.flip(0)}),
        artifact({**TENSORS, "pixel_values": PIXELS.reshape(3, 2, 4)}),
        artifact({**TENSORS, "pixel_values": PIXELS.view(torch.int32)}),
        artifact({"pixels": PIXELS, "grid": TENSORS["grid"]}),
        artifact({"pixel_values": PIXELS}),
    ],
    ids=["digest", "size", "one value", "order", "shape", "dtype", "name", "one tensor less"],
)
def test_whatever_the_encoder_is_given_tells_two_artifacts_apart(other: Artifact) -> None:
    """Cases H14 and H15: also under one digest, which the processor's options do not change."""
    assert other.identity != artifact().identity


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.uint8, torch.int64])
def test_an_identity_needs_no_particular_dtype_layout_or_size(dtype: torch.dtype) -> None:
    values = torch.arange(6).reshape(2, 3).T.to(dtype)
    made = artifact({"a": values, "scalar": values[0, 0], "none": values[:0]})
    assert made.identity == artifact(dict(made.tensors)).identity
