"""The seam between the artifact cache and one model's way to make artifacts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from firstlight.errors import ArtifactError
from firstlight.media.artifact import Artifact
from firstlight.media.identity import ArtifactKey, Snapshot, fingerprint_of


@dataclass(frozen=True, slots=True, eq=False)
class Miss:
    """One artifact to make; it has to carry ``str(key)`` and the snapshot's digest."""

    key: ArtifactKey
    snapshot: Snapshot
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Made:
    """An artifact that was made just now.

    Attributes:
        decode_s, process_s: seconds that decoding and the processor took for it.
    """

    artifact: Artifact
    decode_s: float = 0.0
    process_s: float = 0.0


class ArtifactMaker(Protocol):
    """What a store must be told about a model and a modality. Threads share it."""

    @property
    def modality(self) -> str:
        """``image``, ``video``, ..."""
        ...

    @property
    def fingerprint(self) -> str:
        """Of all that decides an artifact beside content and options."""
        ...

    def options(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        """The options that count. MediaError for one that cannot be honoured."""
        ...

    def snapshot(self, source: object) -> Snapshot:
        """The content of a source. MediaError if it cannot be had."""
        ...

    def make(self, misses: Sequence[Miss]) -> Sequence[Made | Exception]:
        """The artifacts of one batch, in order, or for each what went wrong.

        Raising fails the batch, and its items are made again one by one.
        """
        ...


def make_each(
    make_one: Callable[[Miss], Made], misses: Sequence[Miss], workers: Executor | None
) -> list[Made | Exception]:
    """Each artifact by itself, in order; what is wrong with one is no other's failure.

    Args:
        workers: make them side by side; None does it in turn.
    """

    def tried(miss: Miss) -> Made | Exception:
        try:
            return make_one(miss)
        except Exception as error:  # belongs to this item
            return error

    return list(map(tried, misses) if workers is None else workers.map(tried, misses))


def fingerprint_or_own(facts: Mapping[str, object]) -> str:
    """The fingerprint of some facts; where they cannot be described, one that nobody else has, so
    that nothing is shared."""
    try:
        return fingerprint_of(facts)
    except TypeError:
        return f"unique:{uuid4()}"


def make_batch(maker: ArtifactMaker, misses: Sequence[Miss]) -> list[Made | BaseException]:
    """Run a maker once; if it raises, once per item, so that only the guilty one fails.

    Never raises: what went wrong stands in the item's place. Of a maker that breaks its contract
    nothing is taken.
    """
    try:
        return _validated(misses, maker.make(misses))
    except ArtifactError as error:
        return [error] * len(misses)
    except Exception as error:  # a batch of one names the guilty one
        if len(misses) == 1:
            return [error]
        return [made for miss in misses for made in make_batch(maker, [miss])]


def _validated(
    misses: Sequence[Miss], made: Sequence[Made | Exception]
) -> list[Made | BaseException]:
    """What a maker returned, if each is what was asked for; otherwise nothing of it is trusted."""
    if len(made) != len(misses):
        raise ArtifactError(f"{len(misses)} artifacts were to be made, and {len(made)} were")
    for miss, result in zip(misses, made, strict=True):
        if isinstance(result, Exception):
            continue
        if not isinstance(result, Made) or not isinstance(result.artifact, Artifact):
            raise ArtifactError(f"a {type(result).__name__} was made where an artifact was due")
        artifact = result.artifact
        if (artifact.key, artifact.digest) != (str(miss.key), miss.snapshot.digest):
            raise ArtifactError("an artifact was made under another key than was asked for")
    return list(made)
