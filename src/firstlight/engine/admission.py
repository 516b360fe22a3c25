"""From messages or a prompt to a sequence: everything that is checked before a request runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.chat_options import PLAIN, ChatOptions, check_open
from firstlight.engine.detokenizer import Detokenizer
from firstlight.engine.media_items import media_items, prefix_media
from firstlight.engine.media_rules import MediaRules
from firstlight.engine.messages import ImageSource, MediaSource, collect_media
from firstlight.engine.pictures import media_item, picture_timings
from firstlight.engine.prompt import Prompt, PromptBuilder
from firstlight.engine.refusal import wrong
from firstlight.engine.sequence import Sequence
from firstlight.engine.video_parts import VideoSource, bare_video
from firstlight.errors import MediaError, PromptTooLongError, RequestError
from firstlight.media import Artifact, ImagePipeline, Prepared
from firstlight.memory.prefix_key import PrefixKey
from firstlight.models.loading import LoadedModel
from firstlight.sampling import Grammar, Grammars, SamplingState


@dataclass(frozen=True, slots=True)
class Draft:
    """A request whose form is checked, and whose pictures are not read yet.

    Attributes:
        build: makes its prompt, given its pictures' artifacts.
        sources: its pictures and videos, in prompt order.
        kwargs: its ``mm_processor_kwargs``.
        started: clock reading at its arrival, in seconds.
        where: the field that its prompt is made of.
    """

    build: Callable[[Seq[Artifact]], Prompt]
    params: SamplingParams
    sources: tuple[MediaSource, ...]
    kwargs: Mapping[str, object] | None
    started: float
    where: str = "prompt"


class Admission:
    """Builds sequences for one loaded model.

    Args:
        max_context: tokens of prompt and answer together that a request may have.
        page_size: tokens of a KV page, the grain of the prefix cache.
        pipeline: prepares pictures; None for a model that takes text only.
        limit: the setting that keeps them below what the model was made for; empty if none does.
        seed: base of the seeds of requests that bring none; each gets its own.
        rules: what holds for the pictures and videos of every request.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        max_context: int,
        page_size: int,
        pipeline: ImagePipeline | None,
        limit: str = "",
        seed: int,
        clock: Callable[[], float],
        rules: MediaRules | None = None,
    ) -> None:
        self._model = model
        self._pipeline = pipeline
        self._rules = rules or MediaRules()
        self._prompts = PromptBuilder(model.tokenizer, model.chat_template, model.adapter)
        self._grammars = Grammars(model.tokenizer, model.eos_token_ids)
        self._vocabulary = len(model.tokenizer)
        self._max_context = max_context
        self._page_size = page_size
        self._limit = limit
        self._clock = clock
        self._seeds = torch.Generator().manual_seed(seed)

    def chat(
        self,
        messages: Seq[Mapping[str, Any]],
        params: SamplingParams,
        kwargs: Mapping[str, object] | None = None,
    ) -> Sequence:
        """A sequence for one conversation: read, prepared and built.

        Raises:
            RequestError: malformed messages, unreadable pictures, or a prompt that is too long.
        """
        return self.whole(self.read_chat(messages, params, kwargs))

    def text(
        self,
        prompt: str,
        images: Seq[Any],
        params: SamplingParams,
        kwargs: Mapping[str, object] | None = None,
        videos: Seq[Any] = (),
    ) -> Sequence:
        """A sequence for a raw prompt whose placeholders stand for ``images``, ``videos`` in order.

        Raises:
            RequestError: as for :meth:`chat`, and when placeholders and pictures differ in number.
        """
        return self.whole(self.read_text(prompt, images, params, kwargs, videos))

    def read_chat(
        self,
        messages: Seq[Mapping[str, Any]],
        params: SamplingParams,
        kwargs: Mapping[str, object] | None = None,
        options: ChatOptions = PLAIN,
    ) -> Draft:
        """A conversation, checked; nothing of its pictures is read.

        Args:
            kwargs: its ``mm_processor_kwargs``.
            options: tools, and how the chat template is to render.

        Raises:
            RequestError: malformed messages, or what no picture of this model can be asked for.
        """
        started = self._clock()
        normalised, sources = collect_media(messages)
        if options.continue_final_message:
            check_open(normalised)
        build = partial(self._prompts.chat, normalised, options=options)
        return self._draft(Draft(build, params, tuple(sources), kwargs, started, "messages"))

    def read_text(
        self,
        prompt: str | Seq[int],
        images: Seq[Any],
        params: SamplingParams,
        kwargs: Mapping[str, object] | None = None,
        videos: Seq[Any] = (),
    ) -> Draft:
        """A raw prompt, text or token ids, as :meth:`read_chat` does it for messages.

        Raises:
            RequestError: as there; or an id that the vocabulary does not have.
        """
        started = self._clock()
        sources: list[MediaSource] = [
            ImageSource(image, where=f"images[{i}]") for i, image in enumerate(images)
        ]
        sources += [bare_video(video, f"videos[{i}]") for i, video in enumerate(videos)]
        build: Callable[[Seq[Artifact]], Prompt]
        if _are_ids(prompt):
            ids = cast("Seq[int]", prompt)
            self.check_ids("prompt", ids)
            build = partial(self._prompts.ids, ids)
        else:
            build = partial(self._prompts.text, cast(str, prompt))
        return self._draft(Draft(build, params, tuple(sources), kwargs, started))

    def prepare(
        self,
        drafts: Seq[Draft],
        places: Seq[str] = ("",),
        *,
        until: Future[Any] | None = None,
    ) -> list[list[Prepared]]:
        """The artifacts of all pictures of several requests, made side by side; each waits for all.

        Args:
            places: what stands before the place of each request's pictures in messages.
            until: gives up when it is done; what was begun goes on for others and for the cache.

        Raises:
            MediaError: the first picture that cannot be had.
            ArtifactError: a fault in preparing them; no request is to blame.
            CancelledError: ``until`` was done first.
        """
        items = [
            media_item(source, self._rules.asked(draft.kwargs), place)
            for draft, place in zip(drafts, places, strict=True)
            for source in draft.sources
        ]
        # Without a pipeline no draft has pictures.
        pipeline = self._pipeline if items else None
        found = iter(pipeline.prepare(items, until=until) if pipeline else ())
        return [[next(found) for _ in draft.sources] for draft in drafts]

    def admit(self, draft: Draft, prepared: Seq[Prepared]) -> Sequence:
        """The sequence of a request whose pictures are there; its media time ends now.

        Raises:
            RequestError: its prompt is too long, or its placeholders are not as many as its
                pictures.
        """
        media_s = self._clock() - draft.started if draft.sources else 0.0
        prompt = draft.build([found.artifact for found in prepared])
        sequence = self._sequence(prompt, draft)
        sequence.timings.media_s = media_s
        rows = [item.rows for item in sequence.needs]
        sequence.timings.pictures = picture_timings(draft.sources, prepared, rows)
        return sequence

    def beginning(self, options: ChatOptions) -> str:
        """How the chat template begins an answer with these options; see there."""
        return self._prompts.beginning(options)

    def check_ids(self, where: str, ids: Iterable[int]) -> None:
        """Raise RequestError for an id that the vocabulary does not have, with its place."""
        for i, token in enumerate(ids):
            if not 0 <= token < self._vocabulary:
                raise wrong(f"{where}[{i}]", token, f"token ids from 0 to {self._vocabulary - 1}")

    def warm_forms(self) -> None:
        """Make ready for forms of answers, so that no request has to wait for the first one."""
        self._grammars.warm()

    def whole(self, draft: Draft) -> Sequence:
        """The sequence of one draft: :meth:`prepare`, then :meth:`admit`; raises as they do."""
        (prepared,) = self.prepare([draft])
        return self.admit(draft, prepared)

    def _draft(self, draft: Draft) -> Draft:
        """The draft, if this model can be asked for it."""
        params = draft.params
        self.check_ids("stop_token_ids", params.stop_token_ids)
        for token, bias in params.biases:
            if token >= self._vocabulary:
                ids = f"keys from 0 to {self._vocabulary - 1}"
                raise wrong(f"logit_bias.{token}", bias, ids)
        self._grammar(params)  # before its pictures are read
        self._rules.check(draft.sources)
        processor, name = self._model.image_processor, self._model.name
        videos = [source for source in draft.sources if isinstance(source, VideoSource)]
        if processor is None and draft.sources:
            first = draft.sources[0]
            what = "video" if isinstance(first, VideoSource) else "picture"
            raise MediaError(f"{first.where} is a {what}, but {name} takes text only")
        if videos and self._model.video_processor is None:
            raise MediaError(f"{videos[0].where} is a video, but {name} takes no videos")
        if draft.kwargs is not None:
            if processor is None:
                raise MediaError(f"mm_processor_kwargs is given, but {name} takes text only")
            if videos:
                raise MediaError(
                    f"mm_processor_kwargs is about pictures, but {videos[0].where} is a video; "
                    "fps and num_frames stand in its own part"
                )
            processor.choices.resolve("auto", draft.kwargs)
        return draft

    def _sequence(self, prompt: Prompt, draft: Draft) -> Sequence:
        params = draft.params
        self._check_length(prompt, draft)
        room = self._max_context - len(prompt.ids)
        model = self._model
        media = media_items(prompt)
        blocks = model.adapter.blocks(prompt.spans)
        return Sequence(
            prompt=prompt,
            params=params,
            positions=model.adapter.positions(len(prompt.ids), prompt.spans, prompt.artifacts),
            sampling=SamplingState(
                params=params,
                prompt_ids=prompt.ids,
                generator=self._generator(params),
                eos_token_ids=tuple(model.eos_token_ids),
                grammar=self._grammar(params),
            ),
            detokenizer=Detokenizer(
                model.tokenizer, params.stop, skip_special_tokens=params.skip_special_tokens
            ),
            max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            started=draft.started,
            # A list of its own: it grows with the answer.
            key=PrefixKey(list(prompt.ids), prefix_media(media, blocks), self._page_size),
            needs=media,
            blocks=blocks,
        )

    def _check_length(self, prompt: Prompt, draft: Draft) -> None:
        n = len(prompt.ids)
        if n == 0:
            raise RequestError(
                "the prompt is empty; it must hold at least one token", where=draft.where
            )
        if n >= self._max_context:
            given = f"max_context = {self._max_context}"
            because = f" ({self._limit} limits it)" if self._limit not in ("", given) else ""
            images = sum(map(len, prompt.spans))
            of_pictures = f", {images} of them for pictures" if images else ""
            asked = draft.params.max_tokens
            more = "" if asked is None else f", and {asked} more were asked for"
            raise PromptTooLongError(
                f"the prompt has {n} tokens{of_pictures}; with {given}{because} it may have at "
                f"most {self._max_context - 1}{more}",
                where=draft.where,
            )

    def _grammar(self, params: SamplingParams) -> Grammar | None:
        """The form of the answer at its beginning.

        Raises:
            RequestError: it cannot be compiled.
        """
        form = params.structured_outputs
        return None if form is None else self._grammars.start(form)

    def _generator(self, params: SamplingParams) -> torch.Generator | None:
        if params.greedy:
            return None
        seed = params.seed
        if seed is None:
            seed = int(torch.randint(2**62, (1,), generator=self._seeds))
        return torch.Generator().manual_seed(seed % 2**63)


def _are_ids(prompt: object) -> bool:
    """Whether a prompt is one of token ids; what is neither that nor text is refused as text."""
    return (
        isinstance(prompt, list | tuple)
        and bool(prompt)
        and all(isinstance(i, int) and not isinstance(i, bool) for i in prompt)
    )
