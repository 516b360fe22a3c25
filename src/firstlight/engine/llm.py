"""The Python API: load a model once, ask it many things."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar, Unpack, cast, overload

from firstlight.config import BUNDLED_MODEL, EngineConfig
from firstlight.core.output import Completion
from firstlight.core.reason import Phase
from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.admission import Admission, Draft
from firstlight.engine.build import Progress, build, load
from firstlight.engine.chat_call import ChatCall, ChatKeywords
from firstlight.engine.engine import completion
from firstlight.engine.inspection import describe
from firstlight.engine.samples import bucket_batches, standard_batches
from firstlight.engine.sequence import Sequence
from firstlight.engine.tools.forms import AnswerForms, ChatForm
from firstlight.engine.verify import verify
from firstlight.errors import ClosedError, ConfigError, RequestError
from firstlight.graphs.sanitizer import Finding
from firstlight.models.registry import AdapterRegistry

Message = Mapping[str, Any]
Conversation = Seq[Message]
_Item = TypeVar("_Item")
_NOUNS = {"images": "pictures", "videos": "videos"}
_Made = TypeVar("_Made")


class LLM:
    """A loaded model with its captured graphs.

    ::

        llm = LLM()                                   # the bundled model
        answer = llm.chat([{"role": "user", "content": [
            {"type": "image", "image": "picture.png"},
            {"type": "text", "text": "What colour is the circle?"}]}])
        print(answer.text, answer.usage, answer.timings.steps)

    Not for several threads: a call while another one is in a step raises BusyError.

    What prepares pictures has threads; :meth:`close`, or a ``with`` statement, ends them. An LLM
    that nobody refers to any more ends them as well.

    Attributes:
        config: the settings in force.
        load_seconds, capture_seconds: how long loading and capturing took.
        parts: what the engine is made of, for tools that measure or inspect it.
    """

    def __init__(
        self,
        model: str | Path = BUNDLED_MODEL,
        *,
        config: EngineConfig | None = None,
        progress: Progress | None = None,
        adapters: AdapterRegistry | None = None,
        late: bool = False,
        **settings: Any,
    ) -> None:
        """Load ``model`` and capture its graphs.

        Args:
            model: folder in Hugging Face layout, a .gguf file, a hub name, or the bundled model.
            config: all settings at once; then neither ``model`` nor ``settings`` may be given.
            progress: called during capture with (phase, bucket, done, total).
            adapters: architectures and their adapters, if one of your own is among them.
            late: leave the longer prefill graphs of a large model out, so that loading takes a
                fraction of the time; their batches run eager, with the reason. For a program that
                asks once. ``parts.late.next()``, called between requests, makes up for one.
            settings: fields of :class:`EngineConfig` by name, e.g. ``dtype="float32"``.

        Raises:
            ConfigError, ModelLoadError, ContractError: each naming what is wrong and what to do.
        """
        if config is None:
            config = EngineConfig.from_options({"model": model, **settings})
        elif settings or model != BUNDLED_MODEL:
            given = sorted(settings) or ["model"]
            raise ConfigError(f"config is given together with {', '.join(given)}; put them into it")
        self.config = config
        began = time.perf_counter()
        loaded = load(config, adapters)
        self.load_seconds = time.perf_counter() - began
        # Whoever calls from Python can read any file anyway.
        self.parts = build(
            config, loaded, progress=progress, clock=time.perf_counter, any_path=True, late=late
        )
        self._closed = False
        self._found_forms: AnswerForms | None = None
        self.capture_seconds = self.parts.capture_seconds

    @overload
    def chat(
        self,
        messages: Conversation,
        sampling_params: SamplingParams | None = None,
        **options: Unpack[ChatKeywords],
    ) -> Completion: ...
    @overload
    def chat(
        self,
        messages: Seq[Conversation],
        sampling_params: SamplingParams | None = None,
        **options: Unpack[ChatKeywords],
    ) -> list[Completion]: ...
    def chat(
        self,
        messages: Conversation | Seq[Conversation],
        sampling_params: SamplingParams | None = None,
        **options: Unpack[ChatKeywords],
    ) -> Completion | list[Completion]:
        """Answer one conversation, or several at once.

        Args:
            messages: OpenAI-style messages; content is text or parts: ``text``, ``image_url``
                (a data URL, or an address), ``image`` (path, bytes or PIL image), ``video_url``, or
                ``video`` (a list of such images, or a file).
            options: ``tools``, ``tool_choice``, ``parallel_tool_calls``, ``chat_template_kwargs``,
                ``continue_final_message``, ``mm_processor_kwargs``; see
                :class:`firstlight.engine.chat_call.ChatCall`.

        Returns:
            A completion for one conversation, a list in order for a list of them, with content,
            thoughts and calls told apart.

        Raises:
            RequestError: a request is invalid, before anything runs; or, for a single conversation,
                it failed. In a list such a failure is that completion's ``error``.
        """
        params, call = _params(sampling_params), ChatCall(**options)
        forms: list[ChatForm] = []

        def read(turns: Conversation) -> Draft:
            forms.append(call.form(self._forms, turns))
            form, kwargs = forms[-1], call.mm_processor_kwargs
            return self._admission.read_chat(turns, form.params(params), kwargs, form.options)

        if _is_conversation(messages):
            sequence = self._admission.whole(read(cast(Conversation, messages)))
            return forms[0].read(self._one(sequence))
        several = cast(Seq[Conversation], messages)
        answers = self._many(_admit_each(self._admission, "conversations", several, read))
        return [form.read(answer) for form, answer in zip(forms, answers, strict=True)]

    def stream_chat(
        self,
        messages: Conversation,
        sampling_params: SamplingParams | None = None,
        **options: Unpack[ChatKeywords],
    ) -> Iterator[str | Completion]:
        """Text as it becomes final, then the :class:`Completion`; arguments as for :meth:`chat`.

        Other calls may be made between two pieces; this request is then computed along with them.
        It holds its place among those that run until it is finished or the iterator is closed.

        Raises:
            RequestError: the request is invalid, at the call; or it failed, on the way.
        """
        params, call = _params(sampling_params), ChatCall(**options)
        form, kwargs = call.form(self._forms, messages), call.mm_processor_kwargs
        admission = self._admission
        draft = admission.read_chat(messages, form.params(params), kwargs, form.options)
        return self._stream(admission.whole(draft), form)

    def _stream(self, sequence: Sequence, form: ChatForm) -> Iterator[str | Completion]:
        sent = 0
        # A step is for all requests that run: what it adds may belong to another one, and what the
        # steps of other calls added to this one is still to be sent.
        for _ in self.parts.engine.run([sequence]):
            if new := sequence.detokenizer.text[sent:]:
                sent += len(new)
                yield new
        if rest := sequence.detokenizer.text[sent:]:
            yield rest
        yield form.read(_raise_if_failed(sequence))

    @overload
    def generate(
        self,
        prompts: str,
        sampling_params: SamplingParams | None = None,
        *,
        images: Seq[Any] | None = None,
        videos: Seq[Any] | None = None,
        mm_processor_kwargs: Mapping[str, object] | None = None,
    ) -> Completion: ...
    @overload
    def generate(
        self,
        prompts: list[str],
        sampling_params: SamplingParams | None = None,
        *,
        images: Seq[Seq[Any]] | None = None,
        videos: Seq[Seq[Any]] | None = None,
        mm_processor_kwargs: Mapping[str, object] | None = None,
    ) -> list[Completion]: ...
    def generate(
        self,
        prompts: str | list[str],
        sampling_params: SamplingParams | None = None,
        *,
        images: Seq[Any] | None = None,
        videos: Seq[Any] | None = None,
        mm_processor_kwargs: Mapping[str, object] | None = None,
    ) -> Completion | list[Completion]:
        """Continue raw prompts, without a chat template.

        Args:
            prompts: text in which the model's own placeholder stands for each picture and video.
            images: the pictures of the prompt; for a list of prompts, one list each.
            videos: likewise its videos, each a list of frames, a file, or a part of a message.
            mm_processor_kwargs: as for :meth:`chat`.

        Raises:
            RequestError: as :meth:`chat`.
        """
        params = _params(sampling_params)
        admission, kwargs = self._admission, mm_processor_kwargs
        if isinstance(prompts, str):
            stills, clips = _listed(images, "images"), _listed(videos, "videos")
            return self._one(admission.text(prompts, stills, params, kwargs, clips))
        if not isinstance(prompts, list | tuple):
            raise RequestError(f"prompts is {_kind(prompts)}; give a string, or a list of strings")
        n = len(prompts)
        media = _groups(images, "images", n), _groups(videos, "videos", n)
        return self._many(
            _admit_each(
                admission,
                "prompts",
                list(zip(prompts, *media, strict=True)),
                lambda group: admission.read_text(*group[:2], params, kwargs, group[2]),
            )
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the sanitizer has found since the start; empty if ``sanitize`` is off."""
        report = self.parts.findings
        return () if report is None else report.findings

    def sanitize(self, max_tokens: int = 3) -> tuple[Finding, ...]:
        """Run sample conversations through every bucket, for the sanitizer to look at.

        Args:
            max_tokens: tokens that each answer gets.

        Returns:
            :attr:`findings`.

        Raises:
            ConfigError: ``sanitize`` is off, or the model has no chat template.
        """
        if self.parts.findings is None:
            raise ConfigError("sanitize = False; only an engine made with sanitize = True can look")
        if not self.parts.model.chat_template:
            raise ConfigError(f"{self.parts.model.name} has no chat template for sample prompts")
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        prefill, decode = (self.parts.runners[phase].buckets.sizes for phase in Phase)
        batches = bucket_batches(
            prefill, decode, lambda turns: len(self.parts.admission.chat(turns, params).prompt.ids)
        )
        pictures = self.parts.model.image_processor is not None
        for batch in (*standard_batches(pictures), *batches):
            self.flush_caches()  # a hit would leave too few tokens for the bucket that is meant
            self.chat(batch, params)
        return self.findings

    def verify(self, progress: Progress | None = None) -> dict[str, Any]:
        """Prove every captured graph in full, now; see :func:`firstlight.engine.verify.verify`.

        Args:
            progress: called before each bucket with (phase, bucket, done, total).
        """
        return verify(self.parts, progress)

    def flush_caches(self) -> None:
        """Forget what earlier requests left; those that run keep theirs.

        That is prefixes, encoded pictures, and what the processor made of pictures.
        """
        self.parts.kv.flush()
        self.parts.encoder_cache.flush()
        if self.parts.pipeline is not None:
            self.parts.pipeline.flush()

    def close(self) -> None:
        """Forget all caches and end the threads that prepare pictures; what runs may be finished.

        A closed LLM answers nothing any more. Closing it again does nothing.
        """
        if not self._closed:
            self._closed = True
            self.flush_caches()
            if self.parts.pipeline is not None:
                self.parts.pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def inspect(self) -> dict[str, Any]:
        """Contract, slots, buckets, backend and what would run eager, as JSON-ready values."""
        return describe(self.parts)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an LLM cannot be pickled: its graphs hold addresses of this process")

    @property
    def _forms(self) -> AnswerForms:
        """How the model writes calls and thoughts; asked of its chat template once."""
        if self._found_forms is None:
            self._found_forms = AnswerForms.of(self.parts)
        return self._found_forms

    @property
    def _admission(self) -> Admission:
        if self._closed:
            raise ClosedError("this LLM was closed; open another one")
        return self.parts.admission

    def _one(self, sequence: Sequence) -> Completion:
        self._run([sequence])
        return _raise_if_failed(sequence)

    def _many(self, sequences: list[Sequence]) -> list[Completion]:
        self._run(sequences)
        return [completion(sequence) for sequence in sequences]

    def _run(self, sequences: list[Sequence]) -> None:
        for _ in self.parts.engine.run(sequences):
            pass


def _is_conversation(messages: Any) -> bool:
    """Whether these are messages and not conversations; what is neither is refused as messages."""
    several = (
        isinstance(messages, list | tuple) and messages and isinstance(messages[0], list | tuple)
    )
    return not several


def _params(given: object) -> SamplingParams:
    if given is None:
        return SamplingParams()
    if not isinstance(given, SamplingParams):
        raise RequestError(f"sampling_params is {_kind(given)}; give one SamplingParams for all")
    return given


def _listed(given: object, name: str) -> Seq[Any]:
    """The pictures or videos of one prompt."""
    if given is None:
        return ()
    if not isinstance(given, list | tuple):
        raise RequestError(f"{name} is {_kind(given)}; give a list of {_NOUNS[name]}")
    return given


def _groups(given: object, name: str, n: int) -> list[Seq[Any]]:
    """The pictures or videos of each of ``n`` prompts."""
    if given is None:
        return [()] * n
    if not isinstance(given, list | tuple):
        raise RequestError(
            f"{name} is {_kind(given)}; give a list of {_NOUNS[name]} for each prompt"
        )
    if len(given) != n:
        raise RequestError(f"{name} has {len(given)} entries for {n} prompts; give one list each")
    for i, group in enumerate(given):
        if not isinstance(group, list | tuple):
            raise RequestError(f"{name}[{i}] is {_kind(group)}; give a list of {_NOUNS[name]}")
    return list(given)


def _admit_each(
    admission: Admission, name: str, items: Seq[_Item], read: Callable[[_Item], Draft]
) -> list[Sequence]:
    """A sequence for each item, all their pictures prepared together.

    An error says which item is wrong.
    """
    drafts = [_located(read, f"{name}[{i}]", item) for i, item in enumerate(items)]
    prepared = admission.prepare(drafts, [f"{name}[{i}]: " for i in range(len(drafts))])
    return [
        _located(partial(admission.admit, draft), f"{name}[{i}]", found)
        for i, (draft, found) in enumerate(zip(drafts, prepared, strict=True))
    ]


def _located(call: Callable[[_Item], _Made], place: str, item: _Item) -> _Made:
    try:
        return call(item)
    except RequestError as error:
        raise type(error)(f"{place}: {error}") from error


def _kind(value: object) -> str:
    """What ``value`` is, without an article that may not fit."""
    return "None" if value is None else f"of type {type(value).__name__}"


def _raise_if_failed(sequence: Sequence) -> Completion:
    if sequence.error is not None:
        raise RequestError(sequence.error)
    return completion(sequence)


__all__ = ["LLM", "Message"]
