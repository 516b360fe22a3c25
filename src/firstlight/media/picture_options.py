"""How one request may change what a processor makes of its pictures: ``detail``, and by name.

A family says what each ``detail`` means to its processor, and which keyword arguments a request may
give, each with its limits: processors take many more, and some of them change shapes that the model
does not take, or ask for any amount of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from firstlight.core.detail import DETAILS
from firstlight.errors import MediaError

SHRINK: Final = "shrink_to_side"
"""Not a processor's option: the picture is scaled down to this longest side before it."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One keyword argument of a processor that a request may give.

    Attributes:
        accepted: what a refusal says is accepted.
        check: whether a value is.
    """

    accepted: str
    check: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """What requests may choose; by default nothing, and every ``detail`` is without effect.

    Attributes:
        details: what each ``detail`` asks for, as ``knobs`` do; those that are missing change
            nothing.
        knobs: keyword arguments that a request may give itself.
        own: what is in force otherwise. What a request chooses alike is no choice: the picture is
            the same, and so is its artifact.
        settle: brings what was chosen into the processor's form; MediaError for a contradiction.
    """

    details: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    own: Mapping[str, object] = field(default_factory=dict)
    settle: Callable[[Mapping[str, Any]], Mapping[str, object]] = dict

    def resolve(self, detail: object = "auto", kwargs: object = None) -> dict[str, object]:
        """The keyword arguments by which one call of the processor differs from others.

        Args:
            detail: one of ``DETAILS``.
            kwargs: the request's own, a mapping by name, or None; they go before ``detail``.

        Raises:
            MediaError: an unknown detail, a name that is not among ``knobs``, or a refused value.
        """
        if detail not in DETAILS:
            raise MediaError(f"detail = {detail!r:.40}; accepted: {', '.join(DETAILS)}")
        given = self._checked(kwargs)
        settled = self.settle({**self.details.get(str(detail), {}), **given})
        return {
            name: value
            for name, value in settled.items()
            if name not in self.own or value != self.own[name]
        }

    def _checked(self, kwargs: object) -> Mapping[str, object]:
        if kwargs is None:
            return {}
        if not isinstance(kwargs, Mapping):
            raise MediaError(
                f"mm_processor_kwargs is a {type(kwargs).__name__}; accepted: a mapping by name"
            )
        for name, value in kwargs.items():
            knob = self.knobs.get(name) if isinstance(name, str) else None
            if knob is None:
                accepted = ", ".join(self.knobs) or "none with this model"
                raise MediaError(
                    f"mm_processor_kwargs holds {name!r:.60}, which no request may set; "
                    f"accepted: {accepted}"
                )
            if not knob.check(value):
                raise MediaError(
                    f"mm_processor_kwargs: {name} = {value!r:.60}; accepted: {knob.accepted}"
                )
        return kwargs
