"""Lets a command take settings as options, under our names and others', from every source."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from operator import getitem
from typing import Annotated, Any, Final, cast

import typer

from firstlight.cli.layers import Layers, Origin, Rank, read_layers
from firstlight.cli.option_table import (
    Kind,
    Option,
    engine_options,
    picture_options,
    server_options,
)
from firstlight.cli.peer_names import PEERS, Peer, argument_of
from firstlight.config import EngineConfig, option_variables
from firstlight.errors import ConfigError
from firstlight.server.settings import ServerSettings

_TYPES: Final[Mapping[Kind, Any]] = {
    Kind.FLAG: bool | None,
    Kind.INT: int | None,
    Kind.FLOAT: float | None,
    Kind.TEXT: str | None,
    Kind.LIST: list[str] | None,
}
_LAYERS: Final = "firstlight.layers"
_FIELD: Final = re.compile(r"(\w+) = ")


@dataclass(frozen=True, slots=True)
class Given:
    """The settings that were given, of all sources, and where each came from."""

    values: Mapping[str, object]
    origins: Mapping[str, Origin]

    @property
    def model(self) -> str | None:
        """The model, if any was given."""
        model = self.values.get("model")
        return None if model is None else str(model)

    def typed(self, name: str) -> bool:
        """Whether a field was given on the command line itself."""
        origin = self.origins.get(name)
        return origin is not None and origin.rank is Rank.TYPED

    def engine(self, **fixed: object) -> EngineConfig:
        """The engine's configuration.

        Args:
            fixed: fields that the command itself sets, whatever was given; None sets nothing.

        Raises:
            ConfigError: a value that is refused, with where it came from.
        """
        known = {entry.name for entry in fields(EngineConfig)}
        values = {name: v for name, v in self.values.items() if name in known}
        values |= {name: v for name, v in fixed.items() if v is not None}
        with self.telling(fixed):
            return EngineConfig.from_options(values)

    def server(self) -> ServerSettings:
        """The server's settings; raises as :meth:`engine` does."""
        known = {entry.name for entry in fields(ServerSettings)}
        with self.telling():
            return ServerSettings.from_options({n: v for n, v in self.values.items() if n in known})

    @contextmanager
    def telling(self, fixed: Collection[str] = ()) -> Iterator[None]:
        """Say of a setting that is refused where it came from, unless it was just typed."""
        try:
            yield
        except ConfigError as error:
            found = [
                f"{name} from {origin.where}"
                for name in _FIELD.findall(str(error))
                if (origin := self.origins.get(name)) is not None
                and origin.rank is not Rank.TYPED
                and name not in fixed
            ]
            if not found:
                raise
            raise ConfigError(f"{error} ({', '.join(found)})") from error

    def where(self) -> dict[str, str]:
        """Field -> the option, variable or line that it came from."""
        return {name: origin.where for name, origin in self.origins.items()}


def configured(
    *, server: bool = False, pictures: bool = False, less: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take settings as ``given``, and ``--config``.

    The command has the arguments ``context`` and ``given``.

    Args:
        server: whether it takes the server's settings; pictures: those about pictures.
        less: fields of the engine's settings that it does not take.
    """
    options = [
        *(server_options() if server else ()),
        *engine_options(less),
        *(picture_options(less) if pictures else ()),
    ]
    known = {option.field for option in options} | {"model"}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        taken = {name for p in own.parameters.values() for name in _spellings(p)}
        peers = [
            (peer, name)
            for peer in PEERS
            for name in peer.names
            if name not in taken and (not peer.field or peer.field in known)
        ]
        added = [
            _config_parameter(),
            *map(_parameter, options),
            *(_peer_parameter(peer, name) for peer, name in peers),
        ]

        @wraps(command)
        def run(**values: Any) -> None:
            settings = {p.name: values.pop(p.name) for p in added}
            if "model" in values:
                settings["model"] = values["model"]
            given = _resolve(values["context"], options, peers, settings)
            if "model" in values:
                values["model"] = given.values.get("model")
            command(given=given, **values)

        kept = [p for p in own.parameters.values() if p.name != "given"]
        every = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*kept, *added)]
        run.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in every} | {"return": None}
        return run

    return decorate


def whence(context: Any, name: str) -> str | None:
    """Where an argument got its value from, if it was not typed."""
    layers: Layers | None = context.meta.get(_LAYERS)
    origin = None if layers is None else layers.origins.get(name)
    return None if origin is None or not _untyped(context, name) else origin.where


def _config_parameter() -> inspect.Parameter:
    option = typer.Option(
        "--config",
        metavar="FILE",
        help="Options from a YAML, TOML or JSON file, one key an option. What is typed goes before "
        "variables FIRSTLIGHT_OPTION, and they before the file.",
        show_default=False,
        is_eager=True,
        callback=_read,
    )
    annotation = _annotated(str | None, option)
    return inspect.Parameter("config_file", _KEYWORD, default=None, annotation=annotation)


def _read(context: typer.Context, value: str | None) -> str | None:
    """Give the command's options defaults from file and environment, before any is looked at."""
    if not context.resilient_parsing:
        root = context.find_root().command
        layers = read_layers(context.command, root, value, option_variables())
        context.meta[_LAYERS] = layers
        context.default_map = layers.values
        for warning in layers.warnings:
            print(f"firstlight: {warning}", file=sys.stderr)
    return value


_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY


def _parameter(option: Option) -> inspect.Parameter:
    names = f"--{option.name}"
    if option.kind is Kind.FLAG:
        names = f"{names}/--no-{option.name}"
    repeated = " May be repeated." if option.kind is Kind.LIST else ""
    typed = typer.Option(
        names,
        help=option.text + repeated,
        rich_help_panel=option.panel,
        metavar=option.metavar or ("LIST" if option.kind is Kind.LIST else None),
        show_default=False,
    )
    annotation = _annotated(_TYPES[option.kind], typed)
    return inspect.Parameter(option.field, _KEYWORD, default=None, annotation=annotation)


def _peer_parameter(peer: Peer, name: str) -> inspect.Parameter:
    annotation = _annotated(_TYPES[peer.kind], typer.Option(name, hidden=True))
    return inspect.Parameter(argument_of(name), _KEYWORD, default=None, annotation=annotation)


def _annotated(kind: Any, option: Any) -> Any:
    """``Annotated`` of a type that is known only when the program runs."""
    return getitem(cast(Any, Annotated), (kind, option))


def _spellings(parameter: inspect.Parameter) -> Sequence[str]:
    """The names under which a command's own option is typed."""
    for fact in getattr(parameter.annotation, "__metadata__", ()):
        declared = getattr(fact, "param_decls", None)
        if declared:
            return [name for names in declared for name in names.split("/")]
    return ()


def _resolve(
    context: typer.Context,
    options: Sequence[Option],
    peers: Sequence[tuple[Peer, str]],
    settings: Mapping[str, Any],
) -> Given:
    """One value a field: of two sources the higher one's; of one source they must agree."""
    values: dict[str, object] = {}
    origins: dict[str, Origin] = {}

    def take(name: str, value: object, argument: str, typed: str) -> None:
        layers: Layers = context.meta[_LAYERS]
        origin = layers.origins[argument] if _untyped(context, argument) else None
        origin = origin or Origin(Rank.TYPED, typed)
        before = origins.get(name)
        if before is not None and before.rank < origin.rank:
            return
        if before is not None and before.rank == origin.rank and values[name] != value:
            raise ConfigError(f"{before.where} and {origin.where} give one setting two values")
        values[name], origins[name] = value, origin

    if settings.get("model") is not None:
        take("model", settings["model"], "model", "MODEL")
    for option in options:
        value = settings[option.field]
        if value is not None and value != []:
            take(option.field, _joined(value), option.field, f"--{option.name}")
    for peer, name in peers:
        argument = argument_of(name)
        given = settings[argument]
        if given is None or given == []:
            continue
        try:
            value = peer.value_of(_joined(given), name)
        except ConfigError as error:
            where = whence(context, argument)
            if where is None:
                raise
            raise ConfigError(f"{error} (from {where})") from error
        if value is not None:
            take(peer.field, value, argument, name)
    return Given(values, origins)


def _joined(value: object) -> object:
    """Texts that were repeated as one with commas between; each may hold several itself."""
    return ",".join(value) if isinstance(value, list) else value


def _untyped(context: typer.Context, argument: str) -> bool:
    source = context.get_parameter_source(argument)
    return source is not None and source.name == "DEFAULT_MAP"
