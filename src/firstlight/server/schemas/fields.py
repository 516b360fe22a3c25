"""How fields are declared: strictly, and with those that are known but not served named."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from firstlight.core.sampling_params import MAX_BIAS, MAX_BIASED

IGNORED = "Accepted without effect"
MAX_STOPS = 16
MAX_STOP_CHARS = 1000
MAX_STOP_IDS = 1024
MAX_COUNT = 2**31 - 1


class Strict(BaseModel):
    """Unknown fields and values of another type are errors, and so are NaN and infinities."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def only(*neutral: object, why: str = "not implemented") -> AfterValidator:
    """A field that is known and without effect, so that only its neutral values are accepted."""

    def check(value: Any) -> Any:
        if any(value == accepted for accepted in neutral):
            return value
        shown = ", ".join(map(json.dumps, neutral))
        raise PydanticCustomError(
            "not_supported",
            "this is {why}; accepted without effect: {shown}",
            {"why": why, "shown": shown},
        )

    check.why, check.neutral = why, neutral  # type: ignore[attr-defined]
    return AfterValidator(check)


def refusal_of(field: FieldInfo) -> tuple[str, tuple[object, ...]] | None:
    """Why a field is refused and the values that are not; None if it is served or ignored."""
    for fact in field.metadata:
        if isinstance(fact, AfterValidator) and hasattr(fact.func, "neutral"):
            return fact.func.why, fact.func.neutral  # type: ignore[union-attr]
    return None


def ignored(why: str) -> Any:
    """A field that is accepted and changes nothing; ``why`` is for the documentation."""
    return Field(default=None, description=f"{IGNORED}: {why}.")


Unit = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
Stops = Annotated[list[Stop], Field(max_length=MAX_STOPS)]
Bias = Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
LogitBias = Annotated[dict[str, Bias], Field(max_length=MAX_BIASED)]
StopIds = Annotated[list[Count], Field(max_length=MAX_STOP_IDS)]
