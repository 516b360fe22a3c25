"""Gemma 3: images of a fixed number of rows that see each other, beside text that is causal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from firstlight.contract import MaskKind
from firstlight.models.adapter import Artifact
from firstlight.models.adapters.media import MediaAdapter
from firstlight.models.tower import Tower


class Gemma3Adapter(MediaAdapter):
    """Gemma 3: every image becomes the same number of rows, which see each other.

    Only the image's rows do, not the tokens around them. On sliding layers the window cuts the
    past of an image's rows like that of any other row; their image's later rows they always see.
    """

    mask = MaskKind.PREFIX_LM

    @property
    def placeholder(self) -> str:
        """The token that begins an image; the media token stands only in the expanded prompt."""
        return self._token(self.config.boi_token_id)

    @property
    def placeholder_text(self) -> str:
        """As the family's processor writes it: a blank line before and behind the image."""
        end = self._token(self.config.eoi_token_id)
        return f"\n\n{self.placeholder}{self._token(self.media_token_id)}{end}\n\n"

    def _token(self, token_id: int) -> str:
        return str(self.tokenizer.convert_ids_to_tokens(token_id))

    @property
    def processor_options(self) -> Mapping[str, object]:
        """No further crops, which is the default of the family's processor."""
        return {"do_pan_and_scan": False}

    def image_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """The configuration's; the size of the image does not matter."""
        return int(self.config.mm_tokens_per_image)

    def tower(self) -> Tower | str:
        """All pictures have one size."""
        side = int(self.vision_config.image_size)
        return self._crop_tower((side, side))

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """All images in one tower call: the processor gives them one size.

        Text rows are scaled by the embedding module of the decoder, image rows are not.
        """
        pixels = torch.cat([a.tensors["pixel_values"] for a in artifacts])
        return list(self._features(pixel_values=pixels).pooler_output)

    def logits(self, hidden: Tensor) -> Tensor:
        """The LM head alone: this architecture's forward leaves ``final_logit_softcapping`` out."""
        scores: Tensor = self.model.get_output_embeddings()(hidden)
        return scores.float()
