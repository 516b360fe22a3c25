"""What a load is: how many requests, how they come, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from firstlight.bench.values import (
    OBJECTIVES,
    Span,
    is_limits,
    is_sizes,
    is_span,
    parse_limits,
    parse_sizes,
    parse_span,
)
from firstlight.settings import (
    about,
    check_fields,
    is_above_zero,
    is_bool,
    is_int,
    or_none,
    refuse_pair,
    setting,
)

_MANY = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """One load. With ``request_rate`` it is open: requests come whatever the server does. Without,
    it is closed: each of ``concurrency`` clients asks again when it has its answer.

    Raises:
        ConfigError: naming the field, its value and what is accepted, or both fields of a pair
            that cannot go together.
    """

    num_requests: int = setting(
        100, f"an int from 1 to {_MANY}", "Requests that count.", is_int(1, _MANY)
    )
    warmup: int = setting(
        2, f"an int from 0 to {_MANY}", "Requests before those that count.", is_int(0, _MANY)
    )
    concurrency: int | None = setting(
        None,
        "an int from 1 to 10000",
        "Clients of a closed load; 1 is the default.",
        or_none(is_int(1, 10_000)),
    )
    request_rate: float | None = setting(
        None,
        "a number above 0",
        "Requests a second of an open load, on average; their distances are exponential, as those "
        "of independent people are.",
        or_none(is_above_zero),
    )
    max_concurrency: int | None = setting(
        None,
        "an int from 1 to 10000",
        "Requests of an open load that may be under way; the others wait, and their time runs.",
        or_none(is_int(1, 10_000)),
    )
    input_tokens: Span = setting(  # noqa: RUF009 -- it is a field
        "128",
        "an int from 1, or two of them as 100:200",
        "Tokens of a request's text, about; the chat template's and the pictures' come on top.",
        is_span,
        parse_span,
    )
    output_tokens: Span = setting(  # noqa: RUF009
        "64",
        "an int from 1, or two of them as 100:200",
        "Most tokens of an answer.",
        is_span,
        parse_span,
    )
    ignore_eos: bool = setting(
        False, "True or False", "Ask for exactly `output_tokens`, beyond the model's end.", is_bool
    )
    temperature: float = setting(
        0.0,
        "a number from 0 to 100",
        "Of the sampling; 0 is greedy.",
        lambda v: isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 100,
    )
    images: int = setting(0, "an int from 0 to 1000", "Pictures in each request.", is_int(0, 1000))
    image_size: tuple[tuple[int, int], ...] = setting(
        ((448, 448),),
        "WIDTHxHEIGHT in pixels, or several with commas between them",
        "Sizes of the pictures, each as likely.",
        is_sizes,
        parse_sizes,
    )
    distinct_images: int | None = setting(
        None,
        "an int from 1",
        "Different pictures in the whole load; fewer than there are pictures makes some come again."
        " None: no picture comes twice.",
        or_none(is_int(1)),
    )
    seed: int = setting(0, "an int from 0", "Of texts, pictures, lengths and arrivals.", is_int(0))
    timeout: float = setting(
        600.0,
        "a number of seconds above 0",
        "After so long without anything from the server a request has failed.",
        is_above_zero,
    )
    slo: Mapping[str, float] = field(
        default_factory=dict,
        metadata=about(
            f"milliseconds by name, as ttft:200,itl:30, of {', '.join(OBJECTIVES)}",
            "Limits within which an answer is good.",
            is_limits,
            parse_limits,
        ),
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.concurrency is not None and self.request_rate is not None:
            refuse_pair(
                "concurrency",
                self.concurrency,
                "request_rate",
                self.request_rate,
                "a load is closed or open; max_concurrency bounds an open one",
            )
        if self.max_concurrency is not None and self.request_rate is None:
            why = "a closed load has exactly its clients' requests under way"
            refuse_pair("max_concurrency", self.max_concurrency, "request_rate", None, why)
        if self.distinct_images is not None and not self.images:
            why = "there are no pictures"
            refuse_pair("distinct_images", self.distinct_images, "images", 0, why)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> LoadSettings:
        """Settings from options as a command line gives them; None means "not given".

        Raises:
            ConfigError: a value or pair that is refused.
        """
        return cls(**{name: value for name, value in options.items() if value is not None})

    @property
    def clients(self) -> int:
        """Of a closed load."""
        return self.concurrency or 1

    def describe(self) -> dict[str, Any]:
        """JSON-ready."""
        shown = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        for name in ("input_tokens", "output_tokens"):
            shown[name] = str(shown[name])
        shown["image_size"] = ",".join(f"{w}x{h}" for w, h in self.image_size)
        shown["slo"] = dict(self.slo)
        if self.request_rate is None:
            shown["concurrency"] = self.clients
        if not self.images:
            del shown["image_size"], shown["distinct_images"]
        return shown
