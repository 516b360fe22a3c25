"""What a model really does, compared with what it declares, once at load.

Two runs on tiny synthetic inputs: the merge (how wide are the rows that the adapter writes?) and
the body (which attention does each layer ask for?). Both use the code that serves requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from firstlight.attention import AttentionLayer
from firstlight.contract import PLANES_ATTRIBUTE, InputContract, PlaneDType
from firstlight.errors import ModelLoadError, ProbeError
from firstlight.media import ImageProcessor, decode_image
from firstlight.models.adapter import TOWER_ERRORS, Adapter, Artifact

PROBE_ERRORS = (*TOWER_ERRORS, AttributeError, ArithmeticError, AssertionError)
"""What an adapter's own code may raise besides, by a slip that every call will show."""


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """What one layer's attention needs of a KV pool and a kernel.

    Attributes:
        heads, kv_heads: query heads, and the key/value heads that they share.
        head_dim, v_head_dim: columns of a key and of a value.
        window: keys a query may see at most, itself included; None if all before it.
        scale: factor of the scores.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None
    scale: float


@dataclass(frozen=True, slots=True)
class _Rows:
    embeds: Tensor
    positions: Tensor
    planes: Mapping[str, Tensor]
    attention: object


class _Recorder:
    """An attention context that notes what it is asked and returns values of the right shape."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerFacts] = {}

    def attend(self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Note the facts; the first value of each group stands in for attention's result."""
        if layer.index in self.layers:
            raise ModelLoadError(f"layer {layer.index} runs attention twice in one pass")
        self.layers[layer.index] = LayerFacts(
            heads=q.shape[1],
            kv_heads=k.shape[1],
            head_dim=k.shape[2],
            v_head_dim=v.shape[2],
            window=layer.window,
            scale=layer.scale,
        )
        return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)


def probe_layers(adapter: Adapter, *, tokens: int = 2) -> tuple[LayerFacts, ...]:
    """Run the body once on zero rows and report each layer's attention.

    Raises:
        ModelLoadError: the body fails, or a layer bypasses the attention hook or asks it for what
            it cannot do.
        ProbeError: the body does not return ``[tokens, hidden_size]``.
    """
    contract = adapter.contract
    recorder = _Recorder()
    try:
        with torch.no_grad():
            hidden = adapter.body()(neutral_rows(adapter, tokens, recorder))
    except PROBE_ERRORS as error:
        raise ModelLoadError(
            f"the body of {adapter.architecture} fails on {tokens} rows of "
            f"{contract.input_embeds_hidden_size} columns: {type(error).__name__}: {error}"
        ) from error
    check_tensor(hidden, f"the body of {adapter.architecture} returns")
    expected = (tokens, contract.hidden_size)
    if tuple(hidden.shape) != expected:
        raise ProbeError(
            f"the body of {adapter.architecture} returns {tuple(hidden.shape)} for rows of "
            f"{contract.input_embeds_hidden_size} columns; hidden states must be {expected}"
        )
    missing = sorted(set(range(adapter.num_layers)) - set(recorder.layers))
    if missing:
        raise ModelLoadError(
            f"layer {missing[0]} of {adapter.architecture} does not run attention through "
            f"transformers' interface ({len(missing)} of {adapter.num_layers} layers)"
        )
    return tuple(recorder.layers[i] for i in sorted(recorder.layers))


def neutral_rows(adapter: Adapter, tokens: int, attention: object) -> _Rows:
    """Body inputs in which nothing is there: zero rows and positions, neutral planes."""
    contract, device = adapter.contract, adapter.device
    return _Rows(
        embeds=torch.zeros(
            tokens, contract.input_embeds_hidden_size, dtype=adapter.dtype, device=device
        ),
        positions=torch.zeros(contract.position_rank, tokens, dtype=torch.int64, device=device),
        planes={
            plane.name: torch.full(
                (tokens, *plane.shape),
                plane.neutral,
                dtype=_plane_dtype(plane.dtype, adapter.dtype),
                device=device,
            )
            for plane in contract.planes
        },
        attention=attention,
    )


def random_rows(adapter: Adapter, tokens: int, attention: object) -> _Rows:
    """The same with seeded random rows and positions that count on."""
    neutral = neutral_rows(adapter, tokens, attention)
    generator = torch.Generator().manual_seed(0)
    embeds = torch.randn(neutral.embeds.shape, generator=generator).to(neutral.embeds)
    positions = neutral.positions + torch.arange(3, 3 + tokens, device=adapter.device)
    return replace(neutral, embeds=embeds, positions=positions)


def _plane_dtype(dtype: PlaneDType, model: torch.dtype) -> torch.dtype:
    return {PlaneDType.INT64: torch.int64, PlaneDType.INT32: torch.int32}.get(dtype, model)


def probe_artifact(adapter: Adapter, processor: Any) -> Artifact:
    """A small square of noise as the model's processor prepares it; the same at each call.

    Noise, because some towers drop a blank picture.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    image = decode_image(Image.fromarray(pixels, "RGB"))
    return ImageProcessor(processor, adapter.probe_options).artifact(image)


def probe_merge(adapter: Adapter, artifacts: Sequence[Artifact] = ()) -> None:
    """Write two text rows, their planes and the rows of ``artifacts``; compare with the contract.

    Text rows may be as wide as the whole row or as its first segment.

    Raises:
        ProbeError: with both numbers, the model's class and what to declare; or with both dtypes,
            where rows are not of the weights' dtype.
    """
    contract, who = adapter.contract, adapter.architecture
    with torch.no_grad():
        ids = torch.zeros(2, dtype=torch.int64, device=adapter.device)
        text, planes = _written(adapter, ids)
        _check_rows(contract, text, who=who, kind="text rows", first_segment=True)
        _check_dtype(adapter, text, kind="text rows")
        if len(text) != len(ids):
            raise ProbeError(
                f"{type(adapter).__name__}.text_rows gives {len(text)} rows for {len(ids)} tokens"
            )
        _check_planes(adapter, planes, rows=len(ids))
        for rows in _probe_media(adapter, artifacts):
            _check_rows(contract, rows, who=who, kind="media rows", first_segment=False)
            _check_dtype(adapter, rows, kind="media rows")


def _written(adapter: Adapter, ids: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Text rows and planes, as the adapter gives them."""
    name = "text_rows"
    try:
        rows = adapter.text_rows(ids)
        name = "planes"  # what fails from here on
        planes = adapter.planes(ids)
    except PROBE_ERRORS as error:
        raise ProbeError(
            f"{type(adapter).__name__}.{name} fails on {len(ids)} token ids: "
            f"{type(error).__name__}: {error}"
        ) from error
    who = type(adapter).__name__
    check_tensor(rows, f"{who}.text_rows gives")
    if not isinstance(planes, Mapping):
        raise ProbeError(f"{who}.planes gives a {type(planes).__name__}, not a mapping")
    for plane, values in planes.items():
        check_tensor(values, f"{who}.planes gives for {plane!r}")
    return rows, planes


def check_tensor(value: object, what: str) -> None:
    """Adapters are checked by nobody's type checker but their author's.

    Args:
        what: the beginning of the sentence, e.g. ``MyAdapter.logits gives``.

    Raises:
        ProbeError: ``value`` is no tensor.
    """
    if not isinstance(value, Tensor):
        raise ProbeError(f"{what} a {type(value).__name__}, not a tensor")


def _check_planes(adapter: Adapter, written: Mapping[str, Tensor], rows: int) -> None:
    """What the adapter gives for token ids is declared, and is what is declared."""
    who, declared = type(adapter).__name__, {p.name: p for p in adapter.contract.planes}
    for name, value in written.items():
        if name not in declared:
            known = ", ".join(declared) or "none"
            raise ProbeError(
                f"{who}.planes gives {name!r}, which is not declared and would reach nobody; "
                f"{PLANES_ATTRIBUTE} has {known}"
            )
        plane = declared[name]
        dtype, shape = _plane_dtype(plane.dtype, adapter.dtype), (rows, *plane.shape)
        if (value.dtype, tuple(value.shape)) != (dtype, shape):
            raise ProbeError(
                f"{who}.planes gives {name!r} as {tuple(value.shape)} {value.dtype} for {rows} "
                f"tokens; declared are {shape} {dtype}"
            )


def _probe_media(adapter: Adapter, artifacts: Sequence[Artifact]) -> list[Tensor]:
    if not artifacts:
        return []
    try:
        return adapter.encode(artifacts)
    except PROBE_ERRORS as error:
        raise ModelLoadError(
            f"the image tower of {adapter.architecture} does not take what the checkpoint's image "
            f"processor makes: {error}"
        ) from error


def _check_rows(
    contract: InputContract, rows: Tensor, *, who: str, kind: str, first_segment: bool
) -> None:
    if rows.ndim != 2:
        raise ProbeError(f"{who} writes {kind} of shape {tuple(rows.shape)}; rows are 2-D")
    width = rows.shape[-1]
    if first_segment and len(contract.segments) > 1 and width == contract.segments[0].width:
        return
    contract.check_written(width, writer=who, rows=kind)


def _check_dtype(adapter: Adapter, rows: Tensor, *, kind: str) -> None:
    """The slot has the weights' dtype, and nothing is cast on the way into it."""
    if rows.dtype != adapter.dtype:
        method = "text_rows" if kind == "text rows" else "encode"
        raise ProbeError(
            f"{adapter.architecture} writes {kind} of {rows.dtype}, but its weights and the "
            f"input_embeds slot are {adapter.dtype}; cast them in {method} of "
            f"{type(adapter).__name__}"
        )
