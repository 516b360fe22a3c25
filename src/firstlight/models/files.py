"""A checkpoint's files: finding them, and saying in one sentence what is wrong with them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from firstlight.errors import ModelLoadError

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")
_MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors format itself


def resolve_model(name: str | Path, *, revision: str | None = None) -> Path:
    """The local folder or GGUF file that ``name`` stands for; a hub name is downloaded once.

    Raises:
        ModelLoadError: nothing is there, or the hub cannot be reached or has no such model.
    """
    path = Path(name).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.is_file():
        raise ModelLoadError(
            f"{path} is a file, but not a GGUF file; give the folder of the checkpoint"
        )
    if isinstance(name, Path) or not _is_hub_name(str(name)):
        raise ModelLoadError(f"there is no model folder {path}")
    return _download(str(name), revision)


def _is_hub_name(name: str) -> bool:
    owner, slash, model = name.partition("/")
    clean = all(part and part[0] not in ".~" for part in (owner, model))
    return bool(slash) and clean and "/" not in model and not name.endswith(".gguf")


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(_HUB_FILES)))
    except GatedRepoError as error:
        raise ModelLoadError(
            f"the hub gives {name!r} only to accounts that were granted access; log in first"
        ) from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise ModelLoadError(
            f"there is neither a local folder nor a model on the hub called {name!r}"
        ) from error
    except (LocalEntryNotFoundError, OSError) as error:
        raise ModelLoadError(
            f"{name!r} is no local folder, is not in the local cache, and the hub cannot be "
            "reached; give the path of a local checkpoint"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ModelLoadError: it is missing, unreadable, no JSON, or no object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path.parent} has no {path.name}") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelLoadError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path} holds a {type(content).__name__}, not an object")
    return content


def check_weights(folder: Path) -> tuple[Path, ...]:
    """All weight files of a checkpoint, each found and whole.

    Raises:
        ModelLoadError: there are none, a shard is missing, or one is cut short.
    """
    index = folder / WEIGHTS_INDEX
    if index.is_file():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(
            isinstance(name, str) for name in weight_map.values()
        ):
            raise ModelLoadError(f"{index} has no weight_map from weights to files")
        names = sorted(set(weight_map.values()))
        missing = [n for n in names if not (folder / n).is_file()]
        if missing or not names:
            raise ModelLoadError(
                f"{folder} lacks {len(missing)} of the {len(names)} weight files that "
                f"{index.name} names{f', first {missing[0]}' if missing else ''}"
            )
        files = tuple(folder / n for n in names)
    elif (folder / WEIGHTS).is_file():
        files = (folder / WEIGHTS,)
    else:
        others = sorted(p.name for p in folder.glob("*.bin"))
        hint = f" ({others[0]} is pickled, which is not loaded)" if others else ""
        raise ModelLoadError(f"{folder} has no weights: no {WEIGHTS} and no {index.name}{hint}")
    for file in files:
        _check_safetensors(file)
    return files


def _check_safetensors(path: Path) -> None:
    """Compare the size that the header promises with the file's; no tensor is read."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
        if not 0 < length <= min(_MAX_HEADER, size - 8):
            raise ModelLoadError(f"{path} is no whole safetensors file: {size} bytes, bad header")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise ModelLoadError(f"{path} has an unreadable safetensors header") from error
    try:
        ends = [int(v["data_offsets"][1]) for k, v in header.items() if k != "__metadata__"]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelLoadError(
            f"{path} has a damaged safetensors header: not every tensor has its data_offsets"
        ) from error
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise ModelLoadError(
            f"{path} is truncated or damaged: {size} bytes where its header promises {expected}"
        )
