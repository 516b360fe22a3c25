"""Which adapter serves which architecture, and how others are added."""

from __future__ import annotations

from importlib import metadata

import pytest
from tools.tiny_checkpoints import FAMILIES

from firstlight.errors import UnknownArchitectureError
from firstlight.models.adapter import Adapter
from firstlight.models.adapters.qwen_vl import Qwen3VLAdapter
from firstlight.models.registry import AdapterRegistry, Entry


class Own(Adapter):
    """An adapter of somebody else's."""


def test_built_in_architectures_have_their_family() -> None:
    registry = AdapterRegistry(entry_points=False)
    assert registry.entry("Qwen3VLForConditionalGeneration").adapter is Qwen3VLAdapter
    assert registry.entry("LlamaForCausalLM").adapter is Adapter


def test_every_built_in_architecture_has_a_tiny_checkpoint_to_be_tested_with() -> None:
    built = {family().architecture for family in FAMILIES.values()}
    assert built == set(AdapterRegistry(entry_points=False).architectures)


def test_registering_serves_an_architecture_of_ones_own() -> None:
    registry = AdapterRegistry(entry_points=False)
    registry.register_adapter("OwnForCausalLM", Own)
    assert registry.entry("OwnForCausalLM") == Entry(Own)
    assert "OwnForCausalLM" in registry.architectures


def test_registering_in_one_registry_leaves_others_alone() -> None:
    AdapterRegistry(entry_points=False).register_adapter("OwnForCausalLM", Own)
    with pytest.raises(UnknownArchitectureError, match="'OwnForCausalLM'"):
        AdapterRegistry(entry_points=False).entry("OwnForCausalLM")


def test_a_registered_adapter_takes_the_place_of_a_built_in_one() -> None:
    registry = AdapterRegistry(entry_points=False)
    registry.register_adapter("LlamaForCausalLM", Own)
    assert registry.entry("LlamaForCausalLM").adapter is Own


def test_an_installed_package_brings_its_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("PluginForCausalLM", f"{__name__}:Own", group="firstlight.adapters")
    monkeypatch.setattr(metadata, "entry_points", lambda group: (point,))
    registry = AdapterRegistry()
    assert "PluginForCausalLM" in registry.architectures
    assert registry.entry("PluginForCausalLM").adapter is Own
