"""GGUF files of text decoders, converted once and kept.

transformers dequantises a GGUF file tensor by tensor, which takes far longer than loading
safetensors; the result is kept in a cache folder under a name that changes with the file, with the
converter, and with the type of the weights: in the type that is served they are mapped as they lie,
where others would be in memory twice while they are loaded.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from firstlight.errors import ModelLoadError
from firstlight.models.quiet import no_progress_bars
from firstlight.models.weights import first_line

_FORMAT = 1
"""Version of what :func:`converted_folder` writes; counted up when that changes."""


def converted_folder(
    path: Path, cache_dir: Path | None, dtype: torch.dtype = torch.float32
) -> Path:
    """The checkpoint folder of a GGUF file, converted now or earlier.

    Args:
        path: the file.
        cache_dir: the folder gets one entry per file and type under ``gguf/``.
        dtype: of the weights, except for models that keep some of them in float32: of those, all
            are float32.

    Raises:
        ModelLoadError: no cache folder, or a file that transformers cannot read.
    """
    if cache_dir is None:
        raise ModelLoadError(f"{path} is a GGUF file; a cache folder is needed to convert it")
    folder = cache_dir / "gguf" / f"{path.stem}-{_fingerprint(path, dtype)}"
    if not folder.is_dir():
        _convert(path, folder, dtype)
    return folder


def _fingerprint(path: Path, dtype: torch.dtype) -> str:
    """Digest of the content, the type of weights, this format's version and the converter's."""
    import transformers

    kind = "" if dtype is torch.float32 else f"{dtype}:"
    digest = hashlib.sha256(f"{_FORMAT}:{transformers.__version__}:{kind}".encode())
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:24]


def _convert(path: Path, folder: Path, dtype: torch.dtype) -> None:
    """Write ``folder`` under another name and rename it, so that it is whole or not there."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".converting-", dir=folder.parent))
    except OSError as error:
        raise ModelLoadError(
            f"{folder.parent} cannot be written ({error.strerror}); {path} is converted there: "
            "give another cache_dir, or set FIRSTLIGHT_CACHE"
        ) from error
    try:
        _dequantise(path, work, dtype)
        try:
            work.rename(folder)
        except OSError:
            # Another process was faster; its folder has the same content.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _dequantise(path: Path, out: Path, dtype: torch.dtype) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    _check_magic(path)
    source = {"gguf_file": path.name, "local_files_only": True}
    try:
        with no_progress_bars():
            config = AutoConfig.from_pretrained(path.parent, **source)
            tokenizer = AutoTokenizer.from_pretrained(path.parent, **source)
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            _fill(model, path)
            if not _keeps_float32(model):
                model.to(dtype)
            model.save_pretrained(out)
            tokenizer.save_pretrained(out)
    # What a damaged file makes of the reader's offsets, counts and enumerations is up to chance.
    except Exception as error:
        raise ModelLoadError(f"{path} cannot be converted: {first_line(error)}") from error


def _keeps_float32(model: Any) -> bool:
    """Whether some weights are float32 whatever type the model is loaded in."""
    names = ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")
    return any(getattr(model, name, None) for name in names)


def _fill(model: Any, path: Path) -> None:
    """Put the file's tensors into ``model``, all of its own and no others.

    transformers' own loading of GGUF files needs a further package for placing weights on devices;
    its reader does not.
    """
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=True)
    model.tie_weights()
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    missing = [name for name in missing if name not in tied]
    if missing or unexpected:
        raise ValueError(
            f"{len(missing)} weights are missing and {len(unexpected)} are unknown, "
            f"first {(missing or unexpected)[0]}"
        )


def _check_magic(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelLoadError(f"{path} is not a GGUF file, whatever its name says")
