"""From a folder, a hub name or a GGUF file to a model that can be served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from firstlight.errors import ModelLoadError, UnknownArchitectureError
from firstlight.media import ImageProcessor
from firstlight.media.video_processor import VideoProcessor
from firstlight.models import attention_hook
from firstlight.models.adapter import Adapter
from firstlight.models.dtypes import choose_dtype
from firstlight.models.files import (
    check_weights,
    read_json,
    resolve_model,
)
from firstlight.models.gguf import converted_folder
from firstlight.models.head import probe_head
from firstlight.models.preparation_files import (
    declared_image_processor,
    require_tokenizer,
    tell_of_fallback,
)
from firstlight.models.probe import LayerFacts, probe_artifact, probe_layers, probe_merge
from firstlight.models.recurrent import SERVED_LAYERS, why_folder_recurrent, why_recurrent
from firstlight.models.registry import AdapterRegistry, Entry
from firstlight.models.videos import load_video_processor
from firstlight.models.weights import first_line, load_weights, read_architecture


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, its companions and what was found out about it.

    Attributes:
        adapter: the family's adapter around the transformers model.
        tokenizer: transformers' tokenizer.
        image_processor: makes artifacts, with the options of the family; None for text decoders.
        video_processor: makes those of videos; None for a family that takes none.
        chat_template: Jinja source, or None: then there is no chat, only plain prompts.
        eos_token_ids: ids that end an answer.
        layers: attention facts per decoder layer.
        name: the folder's last part or the hub name, for people and for API answers.
        path: the folder that was loaded.
        max_context: positions that the decoder was made for.
    """

    adapter: Adapter
    tokenizer: Any
    image_processor: ImageProcessor | None
    video_processor: VideoProcessor | None
    chat_template: str | None
    eos_token_ids: frozenset[int]
    layers: tuple[LayerFacts, ...]
    name: str
    path: Path
    max_context: int

    def require_chat_template(self) -> str:
        """The chat template.

        Raises:
            ModelLoadError: the checkpoint has none.
        """
        if self.chat_template is None:
            raise ModelLoadError(
                f"{self.name} has no chat template; give plain prompts instead of messages"
            )
        return self.chat_template


def load_model(
    name: str | Path,
    *,
    dtype: str = "auto",
    device: str | torch.device = "cpu",
    cache_dir: Path | None = None,
    trust_remote_code: bool = False,
    registry: AdapterRegistry | None = None,
    revision: str | None = None,
) -> LoadedModel:
    """Load a checkpoint, find its adapter, and check what it declares by running it once.

    Args:
        name: a folder in Hugging Face layout, a GGUF file of a text decoder, or a hub name.
        dtype: of the weights; ``auto`` is bfloat16 where the hardware multiplies it natively.
        cache_dir: where GGUF files are kept converted; needed only for those.
        trust_remote_code: run Python files of the checkpoint.
        registry: architectures and their adapters; default: the built-in ones and plugins.

    Raises:
        ModelLoadError: anything missing, damaged or unsupported, in one sentence.
        ContractError: the model's declaration of its inputs is malformed or not what it writes.
    """
    target = torch.device(device)
    path = resolve_model(name, revision=revision)
    kind = choose_dtype(dtype, target)
    folder = converted_folder(path, cache_dir, kind) if path.is_file() else path
    architecture = read_architecture(folder)
    entry = _entry(registry or AdapterRegistry(), architecture, folder)
    check_weights(folder)
    model = load_weights(folder, architecture, entry, kind, trust_remote_code).to(target)
    tokenizer = _load_tokenizer(folder, model.config, trust_remote_code)
    adapter = prepare_adapter(model, tokenizer, entry.adapter)
    processor = _load_image_processor(folder, adapter, trust_remote_code)
    return LoadedModel(
        adapter=adapter,
        tokenizer=tokenizer,
        image_processor=_image_processor(adapter, processor),
        video_processor=load_video_processor(folder, adapter),
        chat_template=_chat_template(folder, tokenizer),
        eos_token_ids=_eos_token_ids(model, tokenizer),
        layers=_probe(adapter, processor),
        name=path.stem if path.is_file() else _display_name(name, path),
        path=folder,
        max_context=adapter.max_context,
    )


def _entry(registry: AdapterRegistry, architecture: str, folder: Path) -> Entry:
    """The architecture's entry; where there is none, the reason that no adapter would mend."""
    try:
        return registry.entry(architecture)
    except UnknownArchitectureError as error:
        reason = why_folder_recurrent(folder, architecture)
        if reason is None:
            raise
        raise ModelLoadError(reason) from error


def prepare_adapter(model: Any, tokenizer: Any, adapter_class: type[Adapter]) -> Adapter:
    """Put a transformers model into serving state and wrap it: eval, no gradients, attention ours.

    Raises:
        ModelLoadError: its attention or rotary embedding is of a kind that cannot be served.
        ContractError: what it or the adapter declares is malformed.
    """
    model.eval().requires_grad_(False)
    adapter = _adapted(model, tokenizer, adapter_class)
    _refuse_unsupported(adapter)
    _check_media_token(adapter)
    attention_hook.install(adapter.decoder)
    return adapter


def _adapted(model: Any, tokenizer: Any, adapter_class: type[Adapter]) -> Adapter:
    """The adapter around the model, with what it needs of the model checked by name."""
    who = type(model).__name__
    try:
        adapter = adapter_class.for_model(model)(model, tokenizer)
        # Read later, but better missed now.
        _ = adapter.num_layers, adapter.vocab_size, adapter.max_context, adapter.media_token_id
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise ModelLoadError(
            f"{who} lacks something that {adapter_class.__name__} needs: {first_line(error)}; a "
            "model has get_decoder(), and its configuration hidden_size, num_hidden_layers and "
            "vocab_size"
        ) from error
    sizes = {
        "num_layers": adapter.num_layers,
        "vocab_size": adapter.vocab_size,
        "max_context": adapter.max_context,
    }
    for name, value in sizes.items():
        if value < 1:
            raise ModelLoadError(f"{adapter_class.__name__}.{name} is {value}; it must be positive")
    needed = {"get_input_embeddings": "text_rows", "get_output_embeddings": "logits"}
    for name, user in needed.items():
        own = getattr(type(adapter), user) is not getattr(Adapter, user)
        if not own and _call_or_none(model, name) is None:
            raise ModelLoadError(
                f"{who}.{name}() gives no module; define it, or override {user} in "
                f"{adapter_class.__name__}"
            )
    return adapter


def _check_media_token(adapter: Adapter) -> None:
    """The token that media rows replace has an embedding and, with a tokenizer, a name."""
    token, who = adapter.media_token_id, adapter.architecture
    if token is None:
        return
    if not 0 <= token < adapter.vocab_size:
        raise ModelLoadError(
            f"the image token of {who} is {token}, beyond its vocabulary of {adapter.vocab_size}"
        )
    tokenizer = adapter.tokenizer
    if tokenizer is not None and tokenizer.convert_ids_to_tokens(token) is None:
        raise ModelLoadError(f"the image token of {who} is {token}, which its tokenizer lacks")


def _call_or_none(model: Any, name: str) -> Any:
    try:
        return getattr(model, name)()
    except (AttributeError, NotImplementedError):
        return None


_ROPE_REFUSED = {
    "dynamic": "reads positions on the host in every step",
    "longrope": "takes its frequencies from the longest request of a batch, for all of them",
}


def _refuse_unsupported(adapter: Adapter) -> None:
    config, who = adapter.text_config, adapter.architecture
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {str(r.get("rope_type")) for r in (rope, *rope.values()) if isinstance(r, dict)}
    for kind, why in _ROPE_REFUSED.items():
        if kind in kinds:
            raise ModelLoadError(f"{who} uses rope of type {kind!r}, which {why}")
    types = getattr(config, "layer_types", None) or ()
    reason = why_recurrent(who, types)
    if reason is not None:
        raise ModelLoadError(reason)
    unknown = sorted(set(types).difference(SERVED_LAYERS))
    if unknown:
        raise ModelLoadError(
            f"{who} has layers of type {unknown[0]!r}; served are {', '.join(SERVED_LAYERS)}"
        )
    # Gemma's decoders make encoders of themselves by this field, without a word to attention.
    if getattr(config, "use_bidirectional_attention", None) in (True, "all"):
        raise ModelLoadError(
            f"{who} has use_bidirectional_attention = {config.use_bidirectional_attention!r}: its "
            "text tokens see later ones, so it cannot generate"
        )


def _load_tokenizer(folder: Path, config: Any, remote: bool) -> Any:
    from transformers import AutoTokenizer

    if not remote:
        require_tokenizer(folder)
    try:
        return AutoTokenizer.from_pretrained(
            folder, config=config, local_files_only=True, trust_remote_code=remote
        )
    # Damaged files surface as whatever their parsers raise.
    except Exception as error:
        raise ModelLoadError(
            f"{folder} has no usable tokenizer: its files are missing or damaged "
            f"({first_line(error)})"
        ) from error


def _load_image_processor(folder: Path, adapter: Adapter, remote: bool) -> Any | None:
    from transformers import AutoImageProcessor

    if not adapter.multimodal:
        return None
    declared = declared_image_processor(folder)
    try:
        # The PIL backend: the only one that needs no torchvision, and the same on every machine.
        processor = AutoImageProcessor.from_pretrained(
            folder,
            config=adapter.config,
            backend="pil",
            local_files_only=True,
            trust_remote_code=remote,
        )
    # As for the tokenizer: what a damaged file raises is up to its parser.
    except Exception as error:
        raise ModelLoadError(
            f"{folder} has no usable image processor: {first_line(error)}"
        ) from error
    tell_of_fallback(folder, declared, processor)
    return processor


def _image_processor(adapter: Adapter, processor: Any | None) -> ImageProcessor | None:
    if processor is None:
        return None
    return ImageProcessor(processor, adapter.processor_options, adapter.picture_options(processor))


def _chat_template(folder: Path, tokenizer: Any) -> str | None:
    """The tokenizer's template, or the one that older checkpoints keep with the processor."""
    template = tokenizer.chat_template
    for name in ("chat_template.json", "processor_config.json"):
        if template is None and (folder / name).is_file():
            template = read_json(folder / name).get("chat_template")
    if isinstance(template, dict):
        template = template.get("default")
    return None if template is None else str(template)


def _eos_token_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """End tokens of the generation configuration, the configuration and the tokenizer."""
    generation = getattr(model, "generation_config", None)
    text = model.config.get_text_config(decoder=True)
    sources = (generation, model.config, text, tokenizer)
    return frozenset(
        token for source in sources for token in _ids(getattr(source, "eos_token_id", None))
    )


def _ids(value: int | Iterable[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def _probe(adapter: Adapter, processor: Any | None) -> tuple[LayerFacts, ...]:
    probe_merge(adapter, [] if processor is None else [probe_artifact(adapter, processor)])
    layers = probe_layers(adapter)
    probe_head(adapter)
    return layers


def _display_name(name: str | Path, path: Path) -> str:
    return path.resolve().name if Path(name).expanduser() == path else str(name)
