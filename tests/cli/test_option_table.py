"""Every setting is an option, under one name."""

from __future__ import annotations

from dataclasses import fields

from firstlight.cli.option_table import (
    Kind,
    engine_options,
    picture_options,
    server_options,
)
from firstlight.cli.peer_names import PEERS, argument_of
from firstlight.config import EngineConfig
from firstlight.server.settings import ServerSettings

OPTIONS = [*server_options(), *engine_options(), *picture_options()]


def test_every_setting_but_two_is_an_option() -> None:
    settings = {f.name for owner in (EngineConfig, ServerSettings) for f in fields(owner)}
    assert settings - {option.field for option in OPTIONS} == {"model", "sanitize"}


def test_no_name_means_two_things() -> None:
    names = [f"--{option.name}" for option in OPTIONS]
    names += [f"--no-{option.name}" for option in OPTIONS if option.kind is Kind.FLAG]
    names += [name for peer in PEERS for name in peer.names]
    assert len(names) == len(set(names))
    arguments = [argument_of(name) for peer in PEERS for name in peer.names]
    assert len(arguments) == len(set(arguments))


def test_names_from_elsewhere_set_fields_that_exist_or_say_why_not() -> None:
    known = {option.field for option in OPTIONS} | {"model"}
    for peer in PEERS:
        assert peer.field in known if peer.field else peer.note, peer.names


def test_the_kind_of_an_option_is_its_fields_own() -> None:
    kinds = {option.field: option.kind for option in OPTIONS}
    assert kinds["eager"] is Kind.FLAG
    assert kinds["max_context"] is Kind.INT
    assert kinds["request_seconds"] is Kind.FLOAT
    assert kinds["api_key_file"] is Kind.TEXT
    assert kinds["cors_origins"] is Kind.LIST
    assert kinds["prefill_buckets"] is Kind.TEXT  # a list, or a file
