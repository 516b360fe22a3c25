"""The settings about pictures: what may be read, how large it may be, and what is kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from firstlight.settings import (
    about,
    is_above_zero,
    is_bool,
    is_int,
    is_mapping_or_none,
    is_one_of,
    is_text,
    is_tuple_of,
    or_none,
    parse_json,
    parse_list,
    parse_path,
    refuse_pair,
    setting,
)

TOWER_SETTINGS = frozenset({"encoder_graphs", "encoder_budgets"})
"""Those about how the vision tower runs: options of every command that starts an engine."""

_SECONDS = "a number of seconds above 0"


def _parse_ports(value: object) -> object:
    """``'80, 443'`` -> ``(80, 443)``; ``'any'`` -> None."""
    if value == "any":
        return None
    return _parse_numbers(value)


def _parse_numbers(value: object) -> object:
    """``'64, 128'`` -> ``(64, 128)``."""
    parts = parse_list(value)
    if isinstance(parts, tuple):
        return tuple(int(p) if isinstance(p, str) and p.isdecimal() else p for p in parts)
    return parts


def _parse_limits(value: object) -> object:
    """``'{"image": 2}'``, ``'image=2'`` or ``{"image": {"count": 2}}`` -> ``{"image": 2}``."""
    parsed = parse_json(value)
    if isinstance(parsed, str):
        pairs = [part.partition("=") for part in parsed.split(",")]
        if not all(n.strip().isdecimal() for _, _, n in pairs):
            return value
        return {kind.strip(): int(n) for kind, _, n in pairs}
    if not isinstance(parsed, Mapping):
        return parsed
    return {
        kind: limit.get("count") if isinstance(limit, Mapping) else limit
        for kind, limit in parsed.items()
    }


def _is_limits(value: object) -> bool:
    """Whether it says of pictures, videos or both how many there may be."""
    if not isinstance(value, Mapping):
        return False
    return value.keys() <= {"image", "video"} and all(map(is_int(0), value.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSettings:
    """The part of :class:`firstlight.config.EngineConfig` about pictures, which checks it."""

    allowed_media_domains: tuple[str, ...] = setting(
        (),
        "host names, as a list or as text like 'images.example.org,.example.com'",
        "Hosts that pictures may be fetched from: a name exactly, or with a dot before it all "
        "names below it. Redirects are held to it too. Empty: nothing is fetched.",
        is_tuple_of(is_text),
        parse_list,
    )
    allow_any_media_host: bool = setting(
        False,
        "True or False",
        "Fetch pictures from any host whose addresses are public.",
        is_bool,
    )
    trusted_media_networks: tuple[str, ...] = setting(
        (),
        "networks, as a list or as text like '10.1.0.0/16'",
        "Networks whose addresses are accepted although they are not public. The metadata services "
        "of clouds never are.",
        is_tuple_of(is_text),
        parse_list,
    )
    media_ports: tuple[int, ...] | None = setting(
        (80, 443),
        "ints from 1 to 65535, as a list or as text like '80,443', or 'any'",
        "Ports that pictures may be fetched from.",
        or_none(lambda v: bool(v) and is_tuple_of(is_int(1, 65535))(v)),
        _parse_ports,
    )
    max_media_bytes: int = setting(
        64 << 20, "an int from 1", "Most bytes of one picture, from any source.", is_int(1)
    )
    media_redirects: int = setting(
        3, "an int from 0 to 5", "Redirects that a fetch follows.", is_int(0, 5)
    )
    media_connect_seconds: float = setting(
        5.0, _SECONDS, "What one attempt to connect may take.", is_above_zero
    )
    media_read_seconds: float = setting(
        10.0, _SECONDS, "What one wait for data of a fetch may take.", is_above_zero
    )
    media_fetch_seconds: float = setting(
        30.0,
        _SECONDS,
        "What fetching one picture may take, from the first look-up to the last byte.",
        is_above_zero,
    )
    allowed_media_root: Path | None = field(
        default=None,
        metadata=about(
            "a path, or None",
            "Folder that the paths and `file:` addresses of pictures must lie in, links resolved. "
            "None: the Python API and the commands read any path that they are given.",
            or_none(lambda v: isinstance(v, Path)),
            parse_path,
        ),
    )
    max_image_pixels: int = setting(
        64 << 20,
        "an int from 1",
        "Most pixels of a picture, width times height, checked before any is decoded.",
        is_int(1),
    )
    media_background: str = setting(
        "white",
        "a colour's name, or '#rrggbb'",
        "What shows through transparent pixels.",
        is_text,
    )
    artifact_cache_bytes: int = setting(
        512 << 20,
        "an int from 0",
        "Upper limit of what processors made of pictures and is kept, in bytes; 0 keeps none. "
        "Twice `encoder_cache_bytes` by default: what a processor makes of a picture takes about "
        "1.2 (Qwen3-VL 4B) to 4.6 (Qwen2.5-VL 3B) times its encoded rows, and rows are of use only "
        "as long as nothing has to be prepared again to find them.",
        is_int(0),
    )
    media_fetchers: int = setting(
        16,
        "an int from 1 to 256",
        "Pictures that are fetched at the same time; others do not wait for them.",
        is_int(1, 256),
    )
    media_threads: int = setting(
        2,
        "an int from 1 to 256",
        "Pictures that are decoded and processed at the same time.",
        is_int(1, 256),
    )
    trust_media_hashes: bool = setting(
        False,
        "True or False",
        "Believe the `content_hash` of a picture without reading the picture. Whoever can send "
        "requests can then ask about other people's pictures by their hashes.",
        is_bool,
    )

    encoder_graphs: str = setting(
        "off",
        "'off' or 'on'",
        "Capture the vision tower as well, by budgets of pictures' rows or crops. It saves what "
        "lies between operations: much for a small tower or few patches, little for a large one. "
        "[CUDA](cuda.md) says whether it was run there.",
        is_one_of("off", "on"),
    )
    encoder_budgets: tuple[int, ...] | None = setting(
        None,
        "ints from 1, as an ascending list or as text like '64,128,256', or None",
        "Rows of pictures (Qwen) or crops (fixed-size towers) for which the tower is captured. "
        "None: 64, 128 and 256 rows, or 1, 2 and 4 crops.",
        or_none(lambda v: is_tuple_of(is_int(1))(v) and bool(v) and list(v) == sorted(set(v))),
        _parse_numbers,
    )

    limit_mm_per_prompt: Mapping[str, int] | None = setting(
        None,
        'counts by kind, as a mapping or as JSON like \'{"image": 4, "video": 0}\', or None',
        "Most pictures (`image`) and videos (`video`) of one request; a request with more is "
        "refused. None, or a kind that is not named: as many as its prompt has room for.",
        or_none(_is_limits),
        _parse_limits,
    )
    mm_processor_kwargs: Mapping[str, object] | None = setting(
        None,
        "options by name, as a mapping or as JSON like '{\"max_pixels\": 262144}', or None",
        "What the image processor is to do otherwise with the pictures of every request; a "
        "request's own `mm_processor_kwargs` goes before it, option by option.",
        is_mapping_or_none,
        parse_json,
    )

    @property
    def fetches_media(self) -> bool:
        """Whether any picture may be fetched over the network."""
        return self.allow_any_media_host or bool(self.allowed_media_domains)

    def check_media_pairs(self) -> None:
        """Raise ConfigError for settings about pictures that cannot go together."""
        domains = self.allowed_media_domains
        if self.allow_any_media_host and domains:
            why = "the names would limit nothing"
            refuse_pair("allow_any_media_host", True, "allowed_media_domains", domains, why)
