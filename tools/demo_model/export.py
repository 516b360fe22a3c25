"""Write a Hugging Face checkpoint folder from a training state."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file
from tools.demo_model.model import build_config, build_model
from tools.demo_model.tokenizer import SPECIAL, train_tokenizer
from transformers import GenerationConfig

PREPROCESSOR: Final = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "size": {"shortest_edge": 128 * 128, "longest_edge": 192 * 192},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 3,
    "do_resize": True,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "do_convert_rgb": True,
}
LICENSE: Final = """\
The weights, the tokenizer and the configuration in this folder were made from scratch with the
scripts in tools/demo_model and are licensed under the Apache License, Version 2.0
(https://www.apache.org/licenses/LICENSE-2.0), like the rest of this project.
The training pictures were drawn by those scripts; no other data were used.
The architecture is Qwen3-VL as implemented in transformers; no weights of it were used.
"""


def export(state: Path, folder: Path, dtype: torch.dtype) -> int:
    """Write the folder and return the size of the weights in bytes."""
    saved = torch.load(state, weights_only=True)
    model = build_model(0)
    model.load_state_dict(saved["model"])
    tensors = {name: t.to(dtype).contiguous() for name, t in model.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        new = Path(temporary)
        save_file(tensors, new / "model.safetensors", metadata={"format": "pt"})
        config = build_config()
        config.architectures = ["Qwen3VLForConditionalGeneration"]
        config.dtype = str(dtype).removeprefix("torch.")
        config.save_pretrained(new)
        end = SPECIAL.index("<|im_end|>")
        GenerationConfig(
            eos_token_id=[end, SPECIAL.index("<|endoftext|>")],
            pad_token_id=SPECIAL.index("<|endoftext|>"),
            do_sample=False,
            max_new_tokens=64,
        ).save_pretrained(new)
        train_tokenizer().save_pretrained(new)
        (new / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR, indent=2) + "\n")
        (new / "LICENSE").write_text(LICENSE)
        for file in sorted(new.iterdir()):
            copied = Path(shutil.copy(file, folder / f".{file.name}.new"))
            copied.chmod(0o644)
            os.replace(copied, folder / file.name)
    return (folder / "model.safetensors").stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    arguments = parser.parse_args()
    size = export(arguments.state, arguments.folder, getattr(torch, arguments.dtype))
    print(f"{arguments.folder}: {size:,} bytes of {arguments.dtype} weights")


if __name__ == "__main__":
    main()
