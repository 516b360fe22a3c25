"""What firstlight must know about a family of models; the base serves plain decoders as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor

from firstlight.contract import InputContract, MaskKind, resolve_contract
from firstlight.core.span import Span
from firstlight.errors import MediaError
from firstlight.media.picture_options import PictureOptions
from firstlight.media.video import VideoRules
from firstlight.models.body import Body, DecoderBody
from firstlight.models.positions import Positions, linear_positions

if TYPE_CHECKING:
    from firstlight.models.tower import Tower

__all__ = ["Adapter", "Artifact", "Positions"]


TOWER_ERRORS = (ValueError, RuntimeError, TypeError, LookupError)
"""What transformers' towers raise for tensors that do not suit them."""


class Artifact(Protocol):
    """What an adapter needs of a media artifact: the processor's tensors of ONE image or video."""

    @property
    def modality(self) -> str:
        """``image`` or ``video``."""
        ...

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """By the processor's own names, with the batch axis that it returned for one item."""
        ...


class Adapter:
    """Merging, positions, media encoding and body of one model.

    The model or a subclass may declare ``input_embeds_hidden_size``, ``input_segments``,
    ``input_planes`` and ``hc_hidden_size`` (see :mod:`firstlight.contract`); the base declares
    nothing, which means one segment of ``hidden_size`` columns. ``position_rank`` says how many
    rows the positions have, ``mask`` which keys a query may see.

    Nothing here changes after construction: no request leaves anything on an adapter or on its
    modules.

    Attributes:
        model: the transformers model, in eval mode.
        tokenizer: its tokenizer; may be None for a decoder that is only given ids.
        config, text_config: the model's configuration and the decoder's part of it.
        decoder: the bare decoder module, whose attention is firstlight's.
        contract: the resolved input contract.
    """

    position_rank: ClassVar[int] = 1
    multimodal: ClassVar[bool] = False
    mask: ClassVar[MaskKind] = MaskKind.CAUSAL

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.config = model.config
        self.text_config = model.config.get_text_config(decoder=True)
        self.decoder = model.get_decoder()
        self.contract: InputContract = resolve_contract(
            [self, model],
            self.text_config.hidden_size,
            position_rank=self.position_rank,
            mask=self.mask,
        )

    @classmethod
    def for_model(cls, model: Any) -> type[Adapter]:
        """The class that serves this very model, where only the configuration tells variants."""
        return cls

    # -- sizes -------------------------------------------------------------------------------

    @property
    def architecture(self) -> str:
        """The model's class name, as in ``config.json``."""
        return type(self.model).__name__

    @property
    def hidden_size(self) -> int:
        """Columns of a hidden state, which is not the width of a row."""
        return self.contract.hidden_size

    @property
    def vocab_size(self) -> int:
        """Columns of the logits."""
        return int(self.text_config.vocab_size)

    @property
    def num_layers(self) -> int:
        """Decoder layers, i.e. KV pools."""
        return int(self.text_config.num_hidden_layers)

    @property
    def max_context(self) -> int:
        """Positions that the decoder was made for."""
        declared = getattr(self.text_config, "max_position_embeddings", None)
        return 2048 if declared is None else int(declared)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, and so of the rows."""
        dtype: torch.dtype = self.model.dtype
        return dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.model.device
        return device

    # -- rows --------------------------------------------------------------------------------

    def text_rows(self, ids: Tensor) -> Tensor:
        """Embeddings of token ids.

        Args:
            ids: int64 ``[n]`` on the model's device.

        Returns:
            ``[n, W]``: the whole row, or exactly the columns of its first segment.
        """
        rows: Tensor = self.model.get_input_embeddings()(ids)
        return rows

    def planes(self, ids: Tensor) -> Mapping[str, Tensor]:
        """Values of the contract's planes for token ids int64 ``[n]``; absent ones stay neutral."""
        return {}

    def media_rows(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """Encode images and videos, batching what can be batched; neighbours change no result.

        Returns:
            One ``[rows, W]`` tensor per artifact, in order.

        Raises:
            MediaError: the model takes none, or one gave another number of rows or columns than
                its placeholders and the contract expect.
        """
        if not artifacts:
            return []
        try:
            encoded = self.encode(artifacts)
        except TOWER_ERRORS as error:
            raise MediaError(
                f"{self.architecture} cannot encode an image as its processor prepared it: {error}"
            ) from error
        self.check_encoded(artifacts, encoded)
        return encoded

    def check_encoded(self, artifacts: Sequence[Artifact], encoded: Sequence[Tensor]) -> None:
        """Raise MediaError for an artifact that was not encoded into its ``[rows, W]``."""
        for index, (artifact, rows) in enumerate(zip(artifacts, encoded, strict=True)):
            expected = (self.rows(artifact), self.contract.input_embeds_hidden_size)
            if tuple(rows.shape) != expected:
                what = artifact.modality
                which = f"the {what}" if len(encoded) == 1 else f"{what} {index}"
                raise MediaError(
                    f"{self.architecture} encoded {which} into {tuple(rows.shape)} rows and "
                    f"columns, but its placeholders and the input contract take {expected}"
                )

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """What a family implements: :meth:`media_rows` without its checks."""
        raise MediaError(f"{self.architecture} takes no images")

    def tower(self) -> Tower | str:
        """The encoder as a body that graphs can hold, or why it is none."""
        return f"{self.architecture} takes no images"

    # -- prompt ------------------------------------------------------------------------------

    @property
    def media_token_id(self) -> int | None:
        """The id whose positions media rows fill; None for a model without media."""
        return None

    @property
    def placeholder(self) -> str:
        """What the chat template writes for one image; empty for a model without media."""
        if self.media_token_id is None:
            return ""
        return str(self.tokenizer.convert_ids_to_tokens(self.media_token_id))

    @property
    def placeholder_text(self) -> str:
        """What takes a placeholder's place before the prompt is tokenised.

        It holds the media token once, which :meth:`expand` then replaces. A family whose processor
        writes ordinary text around an image says it here, since that text is tokenised together
        with its neighbours.
        """
        return self.placeholder

    @property
    def processor_options(self) -> Mapping[str, object]:
        """Keyword arguments for each call of the image processor."""
        return {}

    def picture_options(self, processor: Any) -> PictureOptions:
        """What a request may choose about its pictures: the meaning of ``detail``, and options.

        Nothing here. What is chosen goes to the processor before :attr:`processor_options`, so
        :meth:`image_rows` and :meth:`encode` must follow from the tensors.

        Args:
            processor: transformers' image processor of the checkpoint.
        """
        return PictureOptions()

    @property
    def probe_options(self) -> Mapping[str, object]:
        """The same, for the one image of the load's probe: as little work as shows the width."""
        return self.processor_options

    def image_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """Rows that an image will fill, from its processor tensors; the device is not asked."""
        raise MediaError(f"{self.architecture} takes no images")

    def rows(self, artifact: Artifact) -> int:
        """Rows that an artifact will fill."""
        return self.image_rows(artifact.tensors)

    def expand(self, artifact: Artifact) -> list[int]:
        """The token ids that replace one media token of the tokenised prompt.

        Rows fill those that equal the media token.
        """
        if self.media_token_id is None:
            raise MediaError(f"{self.architecture} takes no images")
        return [self.media_token_id] * self.image_rows(artifact.tensors)

    # A family that takes videos says more, see models.adapters.video.

    @property
    def video_token_id(self) -> int | None:
        """The id whose positions the rows of a video fill; None for a model that takes none."""
        return None

    @property
    def video_placeholder(self) -> str:
        """What the chat template writes for one video; empty for a model that takes none.

        A tokenizer that lacks the token makes it one that takes none.
        """
        if self.video_token_id is None:
            return ""
        return str(self.tokenizer.convert_ids_to_tokens(self.video_token_id) or "")

    def video_text(self, artifact: Artifact) -> str:
        """What takes one video's placeholder's place before the prompt is tokenised.

        As :attr:`placeholder_text`: it holds the video token once.
        """
        return self.video_placeholder

    def video_rules(self, settings: Mapping[str, Any]) -> VideoRules | None:
        """How frames are chosen and resized; None for a model that takes no videos.

        Args:
            settings: of the checkpoint's video processor or, where it has none, of its image
                processor.
        """
        return None

    def positions(
        self, n_tokens: int, spans: Sequence[Span], artifacts: Sequence[Artifact]
    ) -> Positions:
        """Positions of a prompt of ``n_tokens``; ``span.item`` indexes ``artifacts``."""
        return linear_positions(n_tokens)

    def blocks(self, spans: Sequence[Span]) -> tuple[tuple[int, int], ...]:
        """Half-open ranges of prompt positions whose rows see each other, in order.

        Empty for a causal mask. With ``MaskKind.PREFIX_LM`` each unbroken run of media rows is one
        block. A row at position p sees the key at j if ``p - j`` is below its layer's window, where
        there is one, and ``j <= p`` or j lies in p's block. A chunk must not cut a block.
        """
        if self.contract.mask is MaskKind.CAUSAL:
            return ()
        blocks: list[tuple[int, int]] = []
        for span in sorted(spans, key=lambda s: s.start):
            if blocks and blocks[-1][1] == span.start:
                blocks[-1] = (blocks[-1][0], span.end)
            else:
                blocks.append((span.start, span.end))
        return tuple(blocks)

    # -- decoder -----------------------------------------------------------------------------

    def body(self) -> Body:
        """The decoder without embedding lookup and LM head."""
        return DecoderBody(self.decoder)

    def logits(self, hidden: Tensor) -> Tensor:
        """``[n, hidden_size]`` to float32 ``[n, vocab_size]``.

        The LM head, then the soft cap of the configuration (``final_logit_softcapping``). A model
        that does more to its scores needs an adapter that does the same; a probe compares the two.
        """
        scores: Tensor = self.model.get_output_embeddings()(hidden).float()
        cap = getattr(self.text_config, "final_logit_softcapping", None)
        return torch.tanh(scores / cap) * cap if cap else scores
