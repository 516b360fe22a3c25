"""Which adapter serves which architecture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from firstlight.errors import UnknownArchitectureError
from firstlight.models.adapter import Adapter
from firstlight.models.adapters.gemma import Gemma3Adapter
from firstlight.models.adapters.llava import LlavaAdapter, LlavaNextAdapter, LlavaOnevisionAdapter
from firstlight.models.adapters.pixtral import PixtralAdapter
from firstlight.models.adapters.qwen_vl import (
    Qwen2VLAdapter,
    Qwen3VLAdapter,
    Qwen25VLAdapter,
)
from firstlight.models.adapters.tiles import Idefics3Adapter, InternVLAdapter

ENTRY_POINTS = "firstlight.adapters"
"""Entry-point group of third-party packages: the architecture's name = the adapter class."""


@dataclass(frozen=True, slots=True)
class Entry:
    """How one architecture is loaded and served.

    Attributes:
        adapter: its adapter class.
        model_class: its model class, or None for transformers' class of that name.
        config_class: its configuration class, or None for what transformers' ``AutoConfig`` finds.
    """

    adapter: type[Adapter]
    model_class: Any = None
    config_class: Any = None


_PLAIN_DECODERS = (
    "Ernie4_5ForCausalLM",
    "Exaone4ForCausalLM",
    "Gemma3ForCausalLM",
    "GemmaForCausalLM",
    "Glm4ForCausalLM",
    "HunYuanDenseV1ForCausalLM",
    "LlamaForCausalLM",
    "MinistralForCausalLM",
    "MistralForCausalLM",
    "MixtralForCausalLM",
    "Olmo2ForCausalLM",
    "Olmo3ForCausalLM",
    "Phi3ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "SeedOssForCausalLM",
    "SmolLM3ForCausalLM",
    "Starcoder2ForCausalLM",
)
"""Text decoders that need nothing special, each compared with transformers in the tests."""

_BUILT_IN: Mapping[str, type[Adapter]] = {
    **dict.fromkeys(_PLAIN_DECODERS, Adapter),
    "Qwen2VLForConditionalGeneration": Qwen2VLAdapter,
    "Qwen2_5_VLForConditionalGeneration": Qwen25VLAdapter,
    "Qwen3VLForConditionalGeneration": Qwen3VLAdapter,
    "Qwen3VLMoeForConditionalGeneration": Qwen3VLAdapter,
    "LlavaForConditionalGeneration": LlavaAdapter,
    "LlavaNextForConditionalGeneration": LlavaNextAdapter,
    "LlavaOnevisionForConditionalGeneration": LlavaOnevisionAdapter,
    "InternVLForConditionalGeneration": InternVLAdapter,
    "Idefics3ForConditionalGeneration": Idefics3Adapter,
    "SmolVLMForConditionalGeneration": Idefics3Adapter,
    "Mistral3ForConditionalGeneration": PixtralAdapter,
    "Gemma3ForConditionalGeneration": Gemma3Adapter,
}


class AdapterRegistry:
    """Architecture names and their entries; made per use, so that registering is never global.

    Example:
        >>> registry = AdapterRegistry()
        >>> registry.register_adapter("MyForCausalLM", MyAdapter, model_class=MyForCausalLM)
        >>> load_model(folder, registry=registry)
    """

    def __init__(self, *, entry_points: bool = True) -> None:
        """Start from the built-in families.

        Args:
            entry_points: also look up the group ``firstlight.adapters`` of installed packages,
                each loaded only when its architecture is asked for.
        """
        self._entries = {name: Entry(adapter) for name, adapter in _BUILT_IN.items()}
        found: Iterable[metadata.EntryPoint] = (
            metadata.entry_points(group=ENTRY_POINTS) if entry_points else ()
        )
        self._plugins = {point.name: point for point in found}

    def register_adapter(
        self,
        architecture: str,
        adapter: type[Adapter],
        *,
        model_class: Any = None,
        config_class: Any = None,
    ) -> None:
        """Serve ``architecture`` (a name as in ``config.json``) with ``adapter``.

        Args:
            model_class: a transformers-style model (a ``PreTrainedModel``) of one's own; its
                attention layers must go through transformers' attention interface and pass
                keyword arguments down.
            config_class: its configuration class.
        """
        self._entries[architecture] = Entry(adapter, model_class, config_class)

    @property
    def architectures(self) -> tuple[str, ...]:
        """All known names, sorted."""
        return tuple(sorted({*self._entries, *self._plugins}))

    def entry(self, architecture: str) -> Entry:
        """The entry of ``architecture``.

        Raises:
            UnknownArchitectureError: with the list of known ones.
        """
        if architecture in self._entries:
            return self._entries[architecture]
        if architecture in self._plugins:
            loaded: Any = self._plugins[architecture].load()
            return loaded if isinstance(loaded, Entry) else Entry(loaded)
        raise UnknownArchitectureError(
            f"no adapter knows the architecture {architecture!r}; known are "
            f"{', '.join(self.architectures)}"
        )
