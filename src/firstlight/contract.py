"""The input contract: what a model feeds its decoder per token, declared once and checked.

A model class or its adapter may declare

* ``input_embeds_hidden_size: int`` -- columns of one merged row, or
* ``input_segments: Sequence[tuple[str, int]]`` -- ordered ``(name, width)`` of those columns, and
* ``input_planes: Sequence[Plane]`` -- per-token inputs that are no part of the row, and
* ``hc_hidden_size: int`` -- width of the stream between pipeline stages. It is a separate quantity:
  it is never derived from the merge width, nor the other way round.

Nothing declared means one segment ``tokens`` of ``config.hidden_size`` columns. Every consumer of a
width (slots, dummies, merge, admission) takes it from the resolved :class:`InputContract`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from inspect import getattr_static
from typing import Any

from firstlight.errors import ContractError, ProbeError

WIDTH_ATTRIBUTE = "input_embeds_hidden_size"
SEGMENTS_ATTRIBUTE = "input_segments"
PLANES_ATTRIBUTE = "input_planes"
STREAM_ATTRIBUTE = "hc_hidden_size"
_ATTRIBUTES = (WIDTH_ATTRIBUTE, SEGMENTS_ATTRIBUTE, PLANES_ATTRIBUTE, STREAM_ATTRIBUTE)


class PlaneDType(Enum):
    """Element type of a plane."""

    MODEL = "model"  # the dtype of the weights
    INT64 = "int64"
    INT32 = "int32"


class MaskKind(Enum):
    """Which keys a query may see; no mask tensor is ever built."""

    CAUSAL = "causal"
    PREFIX_LM = "prefix_lm"  # causal, but the rows of one media block see each other


@dataclass(frozen=True, slots=True)
class Segment:
    """Columns ``[start, start + width)`` of a row."""

    name: str
    start: int
    width: int

    @property
    def end(self) -> int:
        return self.start + self.width


@dataclass(frozen=True, slots=True)
class Plane:
    """A per-token input beside the row, e.g. token types or per-layer embeddings.

    Attributes:
        shape: dimensions after the token axis; ``()`` is one scalar per token.
        neutral: the value that means "nothing here"; padding and absent data get it.
        index: whether the values address memory (then ``neutral`` must be the sink, 0).
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: PlaneDType = PlaneDType.MODEL
    neutral: float = 0
    index: bool = False


_INTEGER_BITS = {PlaneDType.INT64: 64, PlaneDType.INT32: 32}
_CALL_ARGUMENTS = frozenset(
    {
        "attention_mask",
        "cache_position",
        "firstlight",
        "input_ids",
        "inputs_embeds",
        "past_key_values",
        "position_ids",
        "use_cache",
    }
)
"""Of transformers' decoders, which get planes as keyword arguments."""


@dataclass(frozen=True, slots=True)
class InputContract:
    """What one token brings into the decoder body; immutable, resolved once at load."""

    hidden_size: int
    segments: tuple[Segment, ...]
    planes: tuple[Plane, ...] = ()
    position_rank: int = 1
    mask: MaskKind = MaskKind.CAUSAL
    hc_hidden_size: int | None = None
    declared_by: str | None = None

    @property
    def input_embeds_hidden_size(self) -> int:
        """Columns of one merged row."""
        return self.segments[-1].end

    @property
    def declared(self) -> bool:
        return self.declared_by is not None

    def segment(self, name: str) -> Segment:
        """The segment called ``name``; KeyError if there is none."""
        for segment in self.segments:
            if segment.name == name:
                return segment
        raise KeyError(name)

    def check_written(self, width: int, *, writer: str, rows: str) -> None:
        """Compare a width that was really written with the declared one.

        Raises:
            ProbeError: with both numbers, the writer and what to declare.
        """
        if width == self.input_embeds_hidden_size:
            return
        source = f"{self.declared_by} declares" if self.declared else "the default config gives"
        # Where it is declared already, a second declaration elsewhere would contradict the first.
        owner = self.declared_by or writer
        remedy = f"declare `{WIDTH_ATTRIBUTE} = {width}` on {owner}"
        if len(self.segments) > 1:
            remedy = f"make the {SEGMENTS_ATTRIBUTE} of {owner} add up to {width}"
        raise ProbeError(
            f"{writer} writes {rows} of {width} columns, but {source} {WIDTH_ATTRIBUTE} = "
            f"{self.input_embeds_hidden_size}; {remedy}, or make "
            f"{'it' if owner == writer else writer} write {self.input_embeds_hidden_size} columns"
        )


def resolve_contract(
    declarers: Sequence[object],
    hidden_size: int,
    *,
    position_rank: int = 1,
    mask: MaskKind = MaskKind.CAUSAL,
) -> InputContract:
    """Read the declarations of ``declarers`` (an adapter, a model class) into one contract.

    Args:
        declarers: objects or classes in order of precedence; two that declare different widths are
            an error, not a precedence question.
        hidden_size: the text config's ``hidden_size``, the default width.
        position_rank: rows of the positions slot: 1, 3 or 4.
        mask: which keys a query may see.

    Raises:
        ContractError: a value that is not a positive int, a near-miss attribute name, segments that
            do not add up to the declared width, a mask of no known kind, or declarers that
            disagree.
    """
    _positive_int("hidden_size", hidden_size, "the configuration")
    if position_rank not in (1, 3, 4):
        raise ContractError(f"position_rank is {position_rank}; accepted are 1, 3 and 4")
    if not isinstance(mask, MaskKind):
        kinds = ", ".join(f"MaskKind.{kind.name}" for kind in MaskKind)
        raise ContractError(f"mask is {mask!r}; accepted are {kinds}")
    for declarer in declarers:
        _reject_near_misses(declarer)
    declared = _agreed_segments(declarers)
    declarer, segments = declared or (None, (Segment("tokens", 0, hidden_size),))
    return InputContract(
        hidden_size=hidden_size,
        segments=segments,
        planes=_declared_planes(declarers),
        position_rank=position_rank,
        mask=mask,
        hc_hidden_size=_declared_stream(declarers),
        declared_by=None if declarer is None else _name(declarer),
    )


def _agreed_segments(declarers: Sequence[object]) -> tuple[object, tuple[Segment, ...]] | None:
    """The richest declaration of segments, and who makes it; None if nobody declares any.

    Raises:
        ContractError: two declarers disagree.
    """
    found = [(d, s) for d in declarers if (s := _declared_segments(d)) is not None]
    for other, segments in found[1:]:
        if segments[-1].end != found[0][1][-1].end:
            raise ContractError(
                f"{_name(found[0][0])} declares {WIDTH_ATTRIBUTE} = {found[0][1][-1].end}, but "
                f"{_name(other)} declares {segments[-1].end}; declare it in one place"
            )
    split = [(d, s) for d, s in found if len(s) > 1]
    for other, segments in split[1:]:
        if segments != split[0][1]:
            raise ContractError(
                f"{_name(split[0][0])} and {_name(other)} declare different {SEGMENTS_ATTRIBUTE}: "
                f"{_listed(split[0][1])} and {_listed(segments)}; declare them in one place"
            )
    # The richer declaration wins: it says the same total and names its parts.
    found.sort(key=lambda pair: -len(pair[1]))
    return found[0] if found else None


def _name(declarer: object) -> str:
    return declarer.__name__ if isinstance(declarer, type) else type(declarer).__name__


def _listed(segments: Iterable[Segment]) -> str:
    return ", ".join(f"{s.name}={s.width}" for s in segments)


def _positive_int(field: str, value: object, who: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ContractError(f"{who} declares {field} = {value!r}; it must be a positive int")
    return value


def _reject_near_misses(declarer: object) -> None:
    for name in _own_attributes(declarer):
        # The plain `hidden_size` is nobody's misspelling, though it resembles `hc_hidden_size`.
        if name == "hidden_size" or name in _ATTRIBUTES:
            continue
        if not any(part in name for part in ("input", "hc_hidden", "hidden_size")):
            continue
        match = get_close_matches(name, _ATTRIBUTES, n=1, cutoff=0.86)
        # Only the first letter tells hc_hidden_size from other layers' fc_hidden_size and the like.
        if match and match[0][0] == name[0]:
            raise ContractError(
                f"{_name(declarer)} has an attribute {name!r}, which nothing reads; "
                f"did you mean {match[0]!r}?"
            )


def _own_attributes(declarer: object) -> Iterable[str]:
    """Public names set by the declarer's classes and instance, without their library's bases."""
    cls = declarer if isinstance(declarer, type) else type(declarer)
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] not in ("builtins", "torch", "transformers", "abc"):
            yield from (n for n in vars(base) if not n.startswith("_"))
    if not isinstance(declarer, type):
        yield from (n for n in getattr(declarer, "__dict__", {}) if not n.startswith("_"))


def _declared(declarer: object, attribute: str) -> Any:
    """The attribute's value, None where there is none.

    Raises:
        ContractError: there is one, but reading it fails. `getattr` with a default would take an
            AttributeError inside of a property for a missing attribute, and drop the declaration.
    """
    try:
        return getattr(declarer, attribute)
    except AttributeError as error:
        if getattr_static(declarer, attribute, None) is None:
            return None
        raise ContractError(
            f"{_name(declarer)}.{attribute} cannot be read: {error.__cause__ or error}"
        ) from error
    # A property of somebody's own may raise anything.
    except Exception as error:
        raise ContractError(
            f"{_name(declarer)}.{attribute} cannot be read: {type(error).__name__}: {error}"
        ) from error


def _declared_segments(declarer: object) -> tuple[Segment, ...] | None:
    who = _name(declarer)
    width = _declared(declarer, WIDTH_ATTRIBUTE)
    parts = _declared(declarer, SEGMENTS_ATTRIBUTE)
    if width is not None:
        _positive_int(WIDTH_ATTRIBUTE, width, who)
    if parts is None:
        return None if width is None else (Segment("tokens", 0, width),)
    segments: list[Segment] = []
    start = 0
    for name, declared in _pairs(parts, who):
        part = _positive_int(f"{SEGMENTS_ATTRIBUTE}[{name!r}]", declared, who)
        if any(name == s.name for s in segments):
            raise ContractError(f"{who} declares the segment {name!r} twice")
        segments.append(Segment(name, start, part))
        start += part
    if not segments:
        raise ContractError(
            f"{who} declares {SEGMENTS_ATTRIBUTE} = {parts!r}; it must not be empty"
        )
    if width is not None and width != start:
        raise ContractError(
            f"{who} declares {WIDTH_ATTRIBUTE} = {width}, but its {SEGMENTS_ATTRIBUTE} add up to "
            f"{start} ({_listed(segments)})"
        )
    return tuple(segments)


def _pairs(parts: object, who: str) -> list[tuple[str, object]]:
    pairs = list(parts) if isinstance(parts, Sequence) and not isinstance(parts, str) else None
    if pairs is None or not all(
        isinstance(p, Sequence) and len(p) == 2 and isinstance(p[0], str) for p in pairs
    ):
        raise ContractError(
            f"{who} declares {SEGMENTS_ATTRIBUTE} = {parts!r}; it must be a list of (name, width)"
        )
    return [(name, width) for name, width in pairs]


def _declared_planes(declarers: Sequence[object]) -> tuple[Plane, ...]:
    planes: dict[str, Plane] = {}
    for declarer in declarers:
        declared = _declared(declarer, PLANES_ATTRIBUTE) or ()
        if not isinstance(declared, Iterable):
            raise ContractError(
                f"{_name(declarer)} declares {PLANES_ATTRIBUTE} = {declared!r}; it must be a list "
                "of firstlight.contract.Plane"
            )
        for plane in declared:
            if not isinstance(plane, Plane):
                raise ContractError(
                    f"{_name(declarer)} declares {PLANES_ATTRIBUTE} with {plane!r}; "
                    "each entry must be a firstlight.contract.Plane"
                )
            _check_plane(plane, _name(declarer))
            if planes.setdefault(plane.name, plane) != plane:
                raise ContractError(f"the plane {plane.name!r} is declared twice, differently")
            if plane.index and plane.neutral != 0:
                raise ContractError(
                    f"the index plane {plane.name!r} has neutral = {plane.neutral}; "
                    "index planes pad to the sink, 0"
                )
    return tuple(planes.values())


def _check_plane(plane: Plane, who: str) -> None:
    """Annotations promise these types, but nobody holds a declaration to them.

    Raises:
        ContractError: a field of another type, or a neutral value that the dtype cannot hold.
    """
    if not isinstance(plane.name, str) or not plane.name:
        raise ContractError(f"{who} declares a plane {plane.name!r}; its name must be a string")
    problem = None
    if plane.name in _CALL_ARGUMENTS:
        problem = "is an argument of the decoder call already; rename it"
    elif not isinstance(plane.shape, tuple) or not all(
        isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in plane.shape
    ):
        problem = f"has shape {plane.shape!r}; it must be a tuple of positive ints"
    elif not isinstance(plane.dtype, PlaneDType):
        problem = f"has dtype {plane.dtype!r}; it must be a firstlight.contract.PlaneDType"
    elif not isinstance(plane.neutral, int | float):
        problem = f"has neutral = {plane.neutral!r}; it must be a number"
    elif plane.dtype in _INTEGER_BITS and not _fits(plane.neutral, _INTEGER_BITS[plane.dtype]):
        problem = f"has neutral = {plane.neutral!r}, which {plane.dtype.value} cannot hold"
    if problem:
        raise ContractError(f"the plane {plane.name!r} of {who} {problem}")


def _fits(value: float, bits: int) -> bool:
    return value == value // 1 and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _declared_stream(declarers: Sequence[object]) -> int | None:
    found = [
        (d, _positive_int(STREAM_ATTRIBUTE, value, _name(d)))
        for d in declarers
        if (value := _declared(d, STREAM_ATTRIBUTE)) is not None
    ]
    for other, width in found[1:]:
        if width != found[0][1]:
            raise ContractError(
                f"{_name(found[0][0])} declares {STREAM_ATTRIBUTE} = {found[0][1]}, but "
                f"{_name(other)} declares {width}; declare it in one place"
            )
    return found[0][1] if found else None
