"""Media of a step: the items that its chunks overlap, encoded once, kept while they are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from firstlight.contract import InputContract
from firstlight.core.plan import BatchPlan, Chunk
from firstlight.core.reason import Phase
from firstlight.core.timing import Outcome, PictureTiming, Timings
from firstlight.engine.media_items import MediaItem
from firstlight.engine.media_rows import check_rows
from firstlight.engine.prompt import Prompt
from firstlight.errors import MediaError, RequestError
from firstlight.media.artifact import VIDEO
from firstlight.memory.encoder_cache import EncoderCache, EncoderCacheUsage, owned
from firstlight.models.adapter import Artifact

Clock = Callable[[], float]


class RowsEncoder(Protocol):
    """What the encoder needs of an adapter."""

    @property
    def contract(self) -> InputContract:
        """The resolved input contract."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the rows."""
        ...

    def media_rows(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """One ``[rows, W]`` tensor per artifact, in order; MediaError if that cannot be."""
        ...


class MediaRequest(Protocol):
    """What the encoder needs of a request.

    Attributes:
        computed: positions whose keys and values are in memory; 0 again after a preemption.
        media: encoder rows by item, for the items that the current step merges.
    """

    prompt: Prompt
    computed: int
    media: dict[int, Tensor]
    timings: Timings

    @property
    def needs(self) -> Sequence[MediaItem]:
        """Its items, from :func:`media_items`."""
        ...


class Need(Protocol):
    """One media item as the scheduler knows it."""

    @property
    def key(self) -> str:
        """From :func:`firstlight.engine.media_items.media_key`."""
        ...

    @property
    def rows(self) -> int:
        """Rows that it fills."""
        ...


R = TypeVar("R", bound=MediaRequest)


@dataclass(frozen=True, slots=True)
class Gathered(Generic[R]):
    """A plan whose media are there.

    Attributes:
        plan: the chunks of the requests that did not fail, possibly none.
        failed: the requests whose media could not be had, each with its error.
    """

    plan: BatchPlan[R]
    failed: tuple[tuple[R, RequestError], ...] = ()


@dataclass(frozen=True, slots=True)
class EncoderUsage:
    """Counts since the start, and the cache's own.

    Attributes:
        calls: calls of the adapter.
        encoded: items that were encoded.
        uncached: of these, items that the cache refused: their rows served one step alone.
        reencoded: of these, items that one request had had encoded before, for an earlier chunk.
        failed: items that could not be encoded.
        requests: requests that hold pins now; 0 when nothing runs.
    """

    calls: int
    encoded: int
    uncached: int
    reencoded: int
    failed: int
    requests: int
    cache: EncoderCacheUsage


@dataclass(slots=True)
class _Held:
    """What is held for one request between its first and its last media position."""

    pinned: set[str] = field(default_factory=set)
    spent: set[int] = field(default_factory=set)  # items that were encoded for one step alone


@dataclass(frozen=True, slots=True)
class _Want(Generic[R]):
    request: R
    held: _Held
    item: MediaItem


class Encoder(Generic[R]):
    """Gives each step the rows of the items that its chunks overlap, and encodes what is missing.

    A key that the cache holds stays pinned for a request from the first chunk that overlaps it to
    the last position that needs it, so that a picture that a prompt shows twice is encoded once.

    Args:
        adapter: encodes; called once a step, with each missing key once.
        cache: keeps rows between steps and requests.
        clock: seconds, for ``timings.encode_s`` of the requests that waited for the call.
    """

    def __init__(self, adapter: RowsEncoder, cache: EncoderCache, *, clock: Clock) -> None:
        self._adapter = adapter
        self._cache = cache
        self._clock = clock
        self._held: dict[R, _Held] = {}
        self._calls = self._encoded = self._uncached = self._reencoded = self._failed = 0

    def cost(self, need: Need) -> int:
        """Rows to encode for one more item now: 0 if the cache holds it."""
        width = self._adapter.contract.input_embeds_hidden_size
        return 0 if self._cache.has(need.key, need.rows, width) else need.rows

    def usage(self) -> EncoderUsage:
        """The counters now."""
        return EncoderUsage(
            calls=self._calls,
            encoded=self._encoded,
            uncached=self._uncached,
            reencoded=self._reencoded,
            failed=self._failed,
            requests=sum(bool(held.pinned) for held in self._held.values()),
            cache=self._cache.usage(),
        )

    def gather(self, plan: BatchPlan[R]) -> Gathered[R]:
        """Put the rows of every overlapping item into its request's ``media``.

        A request whose media fail leaves the plan and holds nothing any more; the others are not
        touched. Call :meth:`done` after the step.
        """
        self._forget_preempted(plan)
        wants = [want for chunk in plan.chunks for want in self._missing(chunk)]
        if not wants:
            return Gathered(plan)
        found = self._look_up(wants)
        absent = [want for want in wants if want.item.key not in found]
        made, errors = self._encode(absent)
        self._keep(absent, made)
        failed: dict[R, RequestError] = {}
        for want in wants:
            key = want.item.key
            if key in errors:
                failed.setdefault(want.request, _about(want, errors[key]))
            else:
                rows = found[key] if key in found else made[key]
                want.request.media[want.item.index] = rows
        for request in failed:
            self.forget(request)
        return Gathered(_without(plan, failed), tuple(failed.items()))

    def done(self, plan: BatchPlan[R]) -> None:
        """The plan's chunks are computed: let go of what no later position of them needs."""
        for chunk in plan.chunks:
            request = chunk.request
            held = self._held.get(request)
            if held is None:
                continue
            for item in request.needs:
                if item.end <= chunk.end or item.key not in held.pinned:
                    request.media.pop(item.index, None)
            for key in [key for key in held.pinned if _last(request, key) <= chunk.end]:
                held.pinned.remove(key)
                self._cache.unpin(key)
            if all(item.end <= chunk.end for item in request.needs):
                del self._held[request]

    def forget(self, request: R) -> None:
        """The request ended, failed or lost its place: give back everything that it held."""
        request.media.clear()
        held = self._held.pop(request, None)
        for key in held.pinned if held is not None else ():
            self._cache.unpin(key)

    def reset(self) -> None:
        """Forget all requests and all rows: for after an exception that left anything half done."""
        for request in self._held:
            request.media.clear()
        self._held.clear()
        self._cache.reset()

    def _forget_preempted(self, plan: BatchPlan[R]) -> None:
        """A request that begins again may wait for long, and its pins would keep others out."""
        if self._held:
            planned = {id(chunk.request) for chunk in plan.chunks}
            waiting = [r for r in self._held if not r.computed and id(r) not in planned]
            for request in waiting:
                self.forget(request)

    def _missing(self, chunk: Chunk[R]) -> list[_Want[R]]:
        """Items of the chunk whose rows its request does not have at hand."""
        request = chunk.request
        spans = request.prompt.spans
        if not spans or spans[-1].end <= chunk.start:  # e.g. every decode step
            return []
        wanted = [
            item
            for item in request.needs
            if item.index not in request.media and item.overlaps(chunk.start, chunk.end)
        ]
        held = self._held.setdefault(request, _Held()) if wanted else _Held()
        return [_Want(request, held, item) for item in wanted]

    def _look_up(self, wants: Sequence[_Want[R]]) -> dict[str, Tensor]:
        """Rows that the cache has, each pinned by all that want it before anything is evicted."""
        width = self._adapter.contract.input_embeds_hidden_size
        found: dict[str, Tensor] = {}
        for want in wants:
            key = want.item.key
            if key not in found:
                rows = self._cache.get(key, want.item.rows, width)
                if rows is None:
                    continue
                found[key] = rows
            self._pin(want)
            _picture(want).encoded(Outcome.HIT)
        return found

    def _encode(
        self, wants: Sequence[_Want[R]]
    ) -> tuple[dict[str, Tensor], dict[str, RequestError]]:
        """Every key once: all in one call, or one by one if that fails."""
        unique: dict[str, _Want[R]] = {}
        for want in wants:
            unique.setdefault(want.item.key, want)
        if not unique:
            return {}, {}
        began = self._clock()
        made: dict[str, Tensor] = {}
        errors: dict[str, RequestError] = {}
        try:
            made = self._call(list(unique.values()))
        except MediaError as error:
            if len(unique) == 1:
                errors = dict.fromkeys(unique, error)
            else:
                made, errors = self._encode_alone(unique)
        self._encoded += len(made)
        self._failed += len(errors)
        seconds = self._clock() - began
        for want in wants:
            if unique[want.item.key] is want:
                _picture(want).encoded(Outcome.MISS, seconds)
            else:
                _picture(want).encoded(Outcome.JOINED)
        for request in {id(want.request): want.request for want in wants}.values():
            request.timings.encode_s += seconds
        return made, errors

    def _encode_alone(
        self, unique: dict[str, _Want[R]]
    ) -> tuple[dict[str, Tensor], dict[str, RequestError]]:
        made: dict[str, Tensor] = {}
        errors: dict[str, RequestError] = {}
        for key, want in unique.items():
            try:
                made.update(self._call([want]))
            except MediaError as error:
                errors[key] = error
        return made, errors

    @torch.no_grad()
    def _call(self, wants: Sequence[_Want[R]]) -> dict[str, Tensor]:
        """One call of the adapter, every result checked.

        Raises:
            MediaError: the call fails, or one result is not what its prompt and the slot take.
        """
        self._calls += 1
        adapter = self._adapter
        artifacts = [want.request.prompt.artifacts[want.item.index] for want in wants]
        try:
            results = adapter.media_rows(artifacts)
        except MediaError:
            raise
        # The adapter's own code may fail in any way, out of memory among them; its other requests
        # must live on.
        except Exception as error:
            raise MediaError(f"encoding fails: {type(error).__name__}: {error}") from error
        if len(results) != len(wants):
            raise MediaError(f"the encoder gives {len(results)} results for {len(wants)} items")
        for want, rows in zip(wants, results, strict=True):
            check_rows(rows, want.item.rows, adapter.contract, adapter.dtype, _kind(want))
        return {want.item.key: rows for want, rows in zip(wants, results, strict=True)}

    def _keep(self, wants: Sequence[_Want[R]], made: dict[str, Tensor]) -> None:
        """Give new rows to the cache, and pin them for all that want them."""
        kept: dict[str, bool] = {}
        for want in wants:
            key = want.item.key
            if key not in made:
                continue
            if key not in kept:
                rows = owned(made[key])
                kept[key] = self._cache.put(key, rows)
                made[key] = rows if kept[key] else made[key]
                self._uncached += not kept[key]
                self._reencoded += want.item.index in want.held.spent
            if kept[key]:
                self._pin(want)
            else:
                want.held.spent.add(want.item.index)

    def _pin(self, want: _Want[R]) -> None:
        if want.item.key not in want.held.pinned:
            want.held.pinned.add(want.item.key)
            self._cache.pin(want.item.key)


def _picture(want: _Want[R]) -> PictureTiming:
    return want.request.timings.picture(want.item.index)


def _kind(want: _Want[R]) -> str:
    """What the item is, in a word."""
    artifact = want.request.prompt.artifacts[want.item.index]
    return "video" if artifact.modality == VIDEO else "picture"


def _last(request: MediaRequest, key: str) -> int:
    """Where the request's last item of this key ends."""
    return max(item.end for item in request.needs if item.key == key)


def _about(want: _Want[R], error: RequestError) -> RequestError:
    """An error of a key, with the number that the item has in this request if it has several."""
    several = len(want.request.needs) > 1
    return MediaError(f"{_kind(want)} {want.item.index}: {error}") if several else error


def _without(plan: BatchPlan[R], failed: dict[R, RequestError]) -> BatchPlan[R]:
    if not failed:
        return plan
    chunks = tuple(chunk for chunk in plan.chunks if chunk.request not in failed)
    decode = all(len(chunk) == 1 for chunk in chunks)
    return BatchPlan(Phase.DECODE if chunks and decode else plan.phase, chunks)
