"""From the sources of one request to their artifacts, each read once and made at most once.

The order matters (a trusted hit reads nothing; a caller's hash is checked before anything is looked
up; everything of one request is claimed at one moment), and so does who works: the store's pools
do, and callers only wait. A caller that gives up therefore ends nothing but its own wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import dataclass
from typing import Any

from firstlight.core.timing import Outcome
from firstlight.errors import MediaError
from firstlight.media.artifact import Artifact
from firstlight.media.artifact_cache import ArtifactCache, Claim, Flight
from firstlight.media.artifact_maker import ArtifactMaker, Made, Miss, make_batch
from firstlight.media.digest import check_digest
from firstlight.media.identity import ArtifactKey, Snapshot, artifact_key
from firstlight.media.media_item import MediaItem, Prepared, placed


@dataclass(frozen=True, slots=True)
class _Read:
    snapshot: Snapshot
    seconds: float


_Ready = tuple[Outcome, Made | BaseException]


class ArtifactStore:
    """Looks up, joins or makes the artifacts of requests. Threads may share it.

    Args:
        maker: of one model.
        cache: what it made before.
        reader_for: the pool that reads a source, so that those which come at once need not wait
            behind those which do not.
        makers: runs batches. It is none of the readers' pools, and callers wait in none of them.
        trust_hashes: whether a caller's hash is believed without reading the content. Whoever can
            send requests could then be answered about other people's pictures by their hashes.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        maker: ArtifactMaker,
        cache: ArtifactCache,
        *,
        reader_for: Callable[[object], Executor],
        makers: Executor,
        trust_hashes: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.cache = cache
        self._maker = maker
        self._reader_for = reader_for
        self._makers = makers
        self._trust = trust_hashes
        self._clock = clock

    def lookup(
        self,
        items: Sequence[MediaItem],
        *,
        bypass: bool = False,
        until: Future[Any] | None = None,
    ) -> list[Artifact]:
        """:meth:`prepare` without what it took."""
        return [found.artifact for found in self.prepare(items, bypass=bypass, until=until)]

    def prepare(
        self,
        items: Sequence[MediaItem],
        *,
        bypass: bool = False,
        until: Future[Any] | None = None,
    ) -> list[Prepared]:
        """One artifact per item, in order; items of equal content and options share one object.

        Args:
            bypass: look nothing up, keep nothing, share nothing; hashes are checked all the same.
            until: gives up when it is done; what was begun goes on for others and for the cache.

        Raises:
            MediaError: the first item that cannot be had, with its place.
            ArtifactError: the maker broke its contract.
            CancelledError: ``until`` was done first.
        """
        options = [self._options(item) for item in items]
        trust = self._trust and not bypass
        found = [
            self._trusted(item, own) if trust else None
            for item, own in zip(items, options, strict=True)
        ]
        left = [i for i, prepared in enumerate(found) if prepared is None]
        reads = self._read([items[i] for i in left], until, share=not bypass)
        misses = [
            self._miss(read.snapshot, options[i]) for i, read in zip(left, reads, strict=True)
        ]
        ready = self._make(misses, until) if bypass else self._claim(misses, until)
        for i, read, (outcome, made) in zip(left, reads, ready, strict=True):
            if isinstance(made, BaseException):
                raise placed(items[i], made)
            found[i] = Prepared(
                made.artifact,
                outcome,
                read_s=read.seconds,
                decode_s=made.decode_s,
                process_s=made.process_s,
                options=options[i],
            )
        return [prepared for prepared in found if prepared is not None]

    # -- steps ---------------------------------------------------------------------------------

    def _options(self, item: MediaItem) -> Mapping[str, object]:
        try:
            if item.content_hash is not None:
                check_digest(item.content_hash)
            return self._maker.options(item.options)
        except (MediaError, TypeError, ValueError) as error:
            raise MediaError(f"{item.where}: {error}") from error

    def _key(self, digest: str, check: str, options: Mapping[str, object]) -> ArtifactKey:
        return artifact_key(digest, check, self._maker.modality, self._maker.fingerprint, options)

    def _miss(self, snapshot: Snapshot, options: Mapping[str, object]) -> Miss:
        return Miss(self._key(snapshot.digest, snapshot.check, options), snapshot, options)

    def _trusted(self, item: MediaItem, options: Mapping[str, object]) -> Prepared | None:
        """The entry of a hash that is believed; nothing is read."""
        if item.content_hash is None:
            return None
        artifact = self.cache.get(self._key(item.content_hash, "", options))
        return None if artifact is None else Prepared(artifact, Outcome.HIT, options=options)

    def _read(
        self, items: Sequence[MediaItem], until: Future[Any] | None, share: bool
    ) -> list[_Read]:
        """The content of each item; one that a request names twice is read once."""
        begun: dict[object, Future[_Read]] = {}
        for n, item in enumerate(items):
            name = _name(item.source) if share else n
            if name not in begun:
                reader = self._reader_for(item.source)
                begun[name] = reader.submit(self._snapshot, item.source)
        try:
            _await(list(begun.values()), until)
        except CancelledError:
            for future in begun.values():
                future.cancel()  # what has not begun need not
            raise
        reads = []
        for n, item in enumerate(items):
            future = begun[_name(item.source) if share else n]
            failure = future.exception()
            if failure is not None:
                raise placed(item, failure)
            reads.append(future.result())
            if item.content_hash not in (None, reads[-1].snapshot.digest):
                raise MediaError(f"{item.where}: the content does not have the hash that was given")
        return reads

    def _snapshot(self, source: object) -> _Read:
        started = self._clock()
        return _Read(self._maker.snapshot(source), self._clock() - started)

    def _claim(self, misses: Sequence[Miss], until: Future[Any] | None) -> list[_Ready]:
        """Hit, join or make each; equal ones are one."""
        unique = {miss.key: miss for miss in misses}
        claims = dict(zip(unique, self.cache.claim(list(unique)), strict=True))
        self._start([(unique[k], c.flight) for k, c in claims.items() if c.owner and c.flight])
        _await([c.flight.result for c in claims.values() if c.flight], until)
        results = {key: _result(claim) for key, claim in claims.items()}
        return _told_once(misses, results)

    def _make(self, misses: Sequence[Miss], until: Future[Any] | None) -> list[_Ready]:
        """Make each for this request alone, equal ones as well."""
        job = self._makers.submit(make_batch, self._maker, misses)
        _await([job], until)
        return [(Outcome.MISS, made) for made in job.result()]

    def _start(self, owned: Sequence[tuple[Miss, Flight]]) -> None:
        """Have one batch made that ends its flights, whatever happens to it."""

        def ended(job: Future[list[Made | BaseException]]) -> None:
            failure = CancelledError() if job.cancelled() else job.exception()
            made = job.result() if failure is None else [failure] * len(owned)
            for (_, flight), result in zip(owned, made, strict=True):
                self.cache.finish(flight, result)

        if not owned:
            return
        try:
            job = self._makers.submit(make_batch, self._maker, [miss for miss, _ in owned])
        except BaseException as error:  # RuntimeError where the pool was shut down
            for _, flight in owned:
                self.cache.finish(flight, error)
            if not isinstance(error, RuntimeError):
                raise
        else:
            job.add_done_callback(ended)


def _result(claim: Claim) -> _Ready:
    if claim.flight is None:
        assert claim.artifact is not None
        return Outcome.HIT, Made(claim.artifact)
    outcome = Outcome.MISS if claim.owner else Outcome.JOINED
    failure = claim.flight.result.exception()
    if failure is not None:
        return outcome, failure
    made = claim.flight.result.result()
    # The seconds were another request's.
    return outcome, made if claim.owner else Made(made.artifact)


def _told_once(misses: Sequence[Miss], results: Mapping[ArtifactKey, _Ready]) -> list[_Ready]:
    """The result of each; what a request names twice was made, and took its time, once."""
    told: set[ArtifactKey] = set()
    ready: list[_Ready] = []
    for miss in misses:
        outcome, made = results[miss.key]
        if miss.key in told and outcome is Outcome.MISS and isinstance(made, Made):
            outcome, made = Outcome.JOINED, Made(made.artifact)
        told.add(miss.key)
        ready.append((outcome, made))
    return ready


def _await(futures: Sequence[Future[Any]], until: Future[Any] | None) -> None:
    """Wait until all are done, or raise CancelledError when ``until`` is done first."""
    if until is None:
        wait(futures)
        return
    pending = set(futures)
    while pending:
        if until.done():
            raise CancelledError
        wait({*pending, until}, return_when=FIRST_COMPLETED)
        pending = {future for future in pending if not future.done()}


def _name(source: object) -> object:
    """Equal for sources that are the same beyond doubt."""
    return source if isinstance(source, str) else id(source)
