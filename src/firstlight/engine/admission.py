"""From messages or a prompt to a sequence: everything that is checked before a request runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from typing import Any

import torch

from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.detokenizer import Detokenizer
from firstlight.engine.media_items import media_items
from firstlight.engine.messages import ImageSource, collect_images
from firstlight.engine.prompt import Prompt, PromptBuilder
from firstlight.engine.sequence import Sequence
from firstlight.errors import MediaError, RequestError
from firstlight.media import Artifact, ImageProcessor, decode_image, load_image
from firstlight.memory.prefix_key import MediaKey, PrefixKey
from firstlight.models.loading import LoadedModel
from firstlight.sampling import SamplingState


class Arrival:
    """When a request came, and how long its pictures took to read, decode and prepare."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.started = clock()
        self.media_s = 0.0

    def media_ready(self) -> None:
        """Everything since the start was for the pictures."""
        self.media_s = self._clock() - self.started


class Admission:
    """Builds sequences for one loaded model.

    Args:
        max_context: tokens of prompt and answer together that a request may have.
        page_size: tokens of a KV page, the grain of the prefix cache.
        limit: the setting that keeps them below what the model was made for; empty if none does.
        seed: base of the seeds of requests that bring none; each gets its own.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        max_context: int,
        page_size: int,
        limit: str = "",
        seed: int,
        clock: Callable[[], float],
    ) -> None:
        self._model = model
        self._prompts = PromptBuilder(model.tokenizer, model.chat_template, model.adapter)
        self._max_context = max_context
        self._page_size = page_size
        self._limit = limit
        self._clock = clock
        self._seeds = torch.Generator().manual_seed(seed)

    def chat(self, messages: Seq[Mapping[str, Any]], params: SamplingParams) -> Sequence:
        """A sequence for one conversation.

        Raises:
            RequestError: malformed messages, unreadable pictures, or a prompt that is too long.
        """
        arrived = Arrival(self._clock)
        normalised, sources = collect_images(messages)
        artifacts = self._artifacts(sources, arrived)
        return self._sequence(self._prompts.chat(normalised, artifacts), params, arrived)

    def text(self, prompt: str, images: Seq[Any], params: SamplingParams) -> Sequence:
        """A sequence for a raw prompt whose placeholders stand for ``images`` in order.

        Raises:
            RequestError: as for :meth:`chat`, and when placeholders and pictures differ in number.
        """
        arrived = Arrival(self._clock)
        sources = [ImageSource(image, where=f"images[{i}]") for i, image in enumerate(images)]
        artifacts = self._artifacts(sources, arrived)
        return self._sequence(self._prompts.text(prompt, artifacts), params, arrived)

    def _artifacts(self, sources: Seq[ImageSource], arrived: Arrival) -> list[Artifact]:
        if not sources:
            return []
        processor = self._model.image_processor
        if processor is None:
            raise MediaError(
                f"{sources[0].where} is a picture, but {self._model.name} takes text only"
            )
        artifacts = [self._artifact(processor, source) for source in sources]
        arrived.media_ready()
        return artifacts

    def _artifact(self, processor: ImageProcessor, source: ImageSource) -> Artifact:
        try:
            return processor.artifact(decode_image(load_image(source.image)))
        except MediaError as error:
            raise MediaError(f"{source.where}: {error}") from error

    def _sequence(self, prompt: Prompt, params: SamplingParams, arrived: Arrival) -> Sequence:
        n = len(prompt.ids)
        if n == 0:
            raise RequestError("the prompt is empty; it must hold at least one token")
        if n >= self._max_context:
            given = f"max_context = {self._max_context}"
            because = f" ({self._limit} limits it)" if self._limit not in ("", given) else ""
            raise RequestError(
                f"the prompt has {n} tokens; with {given}{because} it may have at most "
                f"{self._max_context - 1}"
            )
        room = self._max_context - n
        model = self._model
        media = media_items(prompt)
        sequence = Sequence(
            prompt=prompt,
            params=params,
            positions=model.adapter.positions(n, prompt.spans, prompt.artifacts),
            sampling=SamplingState(
                params=params,
                prompt_ids=prompt.ids,
                generator=self._generator(params),
                eos_token_ids=tuple(model.eos_token_ids),
            ),
            detokenizer=Detokenizer(model.tokenizer, params.stop),
            max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            started=arrived.started,
            # A list of its own: it grows with the answer.
            key=PrefixKey(
                list(prompt.ids), [MediaKey(m.key, m.spans) for m in media], self._page_size
            ),
            needs=media,
            blocks=model.adapter.blocks(prompt.spans),
        )
        sequence.timings.media_s = arrived.media_s
        return sequence

    def _generator(self, params: SamplingParams) -> torch.Generator | None:
        if params.greedy:
            return None
        seed = params.seed
        if seed is None:
            seed = int(torch.randint(2**62, (1,), generator=self._seeds))
        return torch.Generator().manual_seed(seed % 2**63)
