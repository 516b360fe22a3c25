"""The page on models of one's own: its code runs, and its messages are the real ones."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight import LLM, SamplingParams
from firstlight.contract import Plane, PlaneDType
from firstlight.core.reason import Phase
from firstlight.errors import FirstlightError
from firstlight.models.registry import AdapterRegistry
from tests.pictures import picture

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "bring-your-own-model.md").read_text()
FILES = dict(re.findall(r"^```python\n# (\w+\.py)[^\n]*\n(.*?)^```$", PAGE, re.M | re.S))
ARCHITECTURE = "OwlForConditionalGeneration"
FEW = SamplingParams(temperature=0, max_tokens=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, as a reader would write them."""
    root = tmp_path_factory.mktemp("own")
    for name, text in FILES.items():
        (root / name).write_text(f"# {name}\n{text}")
    return root


@pytest.fixture(scope="module")
def owl(folder: Path) -> Iterator[ModuleType]:
    """The page's adapter; its checkpoint lies in ``folder / "owl"``."""
    sys.path.insert(0, str(folder))
    try:
        importlib.import_module("make_owl").make(folder / "owl")
        yield importlib.import_module("owl_adapter")
    finally:
        sys.path.remove(str(folder))
        for name in ("owl_adapter", "owl_model", "make_owl"):
            sys.modules.pop(name, None)


def test_the_page_has_all_files() -> None:
    assert set(FILES) == {
        "owl_model.py", "make_owl.py", "look.py", "owl_adapter.py", "test_owl.py", "conftest.py",
    }  # fmt: skip


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(folder)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_looking_at_the_decoder_prints_what_the_page_says(folder: Path) -> None:
    done = run(folder, "look.py", "seen")
    assert done.returncode == 0, done.stderr
    assert f"```text\n{done.stdout}```" in PAGE


@pytest.mark.slow
def test_the_tests_of_the_page_pass(folder: Path) -> None:
    done = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_owl.py")
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout


def load(owl: ModuleType, folder: Path, members: Mapping[str, Any], **model: Any) -> LLM:
    """The page's checkpoint with an adapter, or a model, that has other members."""
    adapter = type("OwlAdapter", (owl.OwlAdapter,), dict(members))
    base = owl.OwlForConditionalGeneration
    adapters = AdapterRegistry(entry_points=False)
    adapters.register_adapter(
        ARCHITECTURE,
        adapter,
        model_class=type(ARCHITECTURE, (base,), model) if model else base,
        config_class=owl.OwlConfig,
    )
    settings: dict[str, Any] = {"max_prefill_bucket": 16, "max_num_seqs": 1, "dtype": "float32"}
    return LLM(folder / "owl", adapters=adapters, **settings)


def own_body(owl: ModuleType, change: Callable[[Any, Any, Callable[..., Tensor]], Tensor]) -> Any:
    """Members of an adapter whose body is the page's with ``change`` around it."""
    plain = owl.OwlBody.__call__

    class Body(owl.OwlBody):  # type: ignore[misc, name-defined]
        def __call__(self, inputs: Any) -> Tensor:
            return change(self, inputs, plain)

    return {"body": lambda self: Body(self.decoder, self.hidden_size)}


def layers_called(mask: bool, handle: bool, skip: int = 0) -> Callable[..., Tensor]:
    """A body that calls its layers in another way."""

    def call(self: Any, inputs: Any, plain: Any) -> Tensor:
        hidden = inputs.embeds[None, :, : self.hidden_size]
        rotary = self.decoder.rotary_emb(hidden, inputs.positions)
        more: dict[str, Any] = {"firstlight": inputs.attention} if handle else {}
        more["attention_mask"] = torch.zeros(1, 1, *hidden.shape[1:2] * 2) if mask else None
        for layer in list(self.decoder.layers)[skip:]:
            hidden = layer(hidden, position_embeddings=rotary, **more)
        normed: Tensor = self.decoder.norm(hidden)[0]
        return normed

    return call


INDEXED = (Plane("token_types", dtype=PlaneDType.INT64, index=True, neutral=1),)

REFUSED_AT_LOAD: dict[str, Callable[[ModuleType], tuple[dict[str, Any], dict[str, Any]]]] = {
    "nothing declared": lambda owl: ({"input_segments": None}, {}),
    "wrong width": lambda owl: ({"input_segments": [("tokens", 32), ("detail", 16)]}, {}),
    "misspelt": lambda owl: ({"input_segments": None, "inputs_embeds_hidden_size": 64}, {}),
    "sum": lambda owl: ({"input_embeds_hidden_size": 96}, {}),
    "type": lambda owl: ({"input_segments": None, "input_embeds_hidden_size": "64"}, {}),
    "disagreement": lambda owl: ({}, {"input_embeds_hidden_size": 96}),
    "neutral index": lambda owl: ({"input_planes": INDEXED}, {}),
    "plane name": lambda owl: ({"planes": lambda s, ids: {"token_type": ids}}, {}),
    "plane type": lambda owl: ({"planes": lambda s, ids: {"token_types": ids == 0}}, {}),
    "row too narrow": lambda owl: (
        {"encode": lambda s, a: [r[:, :32] for r in owl.OwlAdapter.encode(s, a)]},
        {},
    ),
    "no norm": lambda owl: (own_body(owl, lambda s, i, plain: i.embeds), {}),
    "no handle": lambda owl: (own_body(owl, layers_called(mask=False, handle=False)), {}),
    "mask": lambda owl: (own_body(owl, layers_called(mask=True, handle=True)), {}),
    "no embeddings": lambda owl: ({}, {"get_input_embeddings": lambda self: None}),
    "failing body": lambda owl: (
        own_body(owl, lambda s, i, plain: i.planes["types"]),
        {},
    ),
    "logits short of a row": lambda owl: (
        {"logits": lambda s, hidden: owl.OwlAdapter.logits(s, hidden)[1:]},
        {},
    ),
    "unreadable": lambda owl: (
        {"input_segments": property(lambda s: [("tokens", s.text_config.hiden_size)])},
        {},
    ),
    "layer left out": lambda owl: (
        own_body(owl, layers_called(mask=False, handle=True, skip=1)),
        {},
    ),
}


@pytest.mark.parametrize("fault", REFUSED_AT_LOAD)
def test_what_is_refused_at_load_says_what_the_page_says(
    fault: str, owl: ModuleType, folder: Path
) -> None:
    members, model = REFUSED_AT_LOAD[fault](owl)
    with pytest.raises(FirstlightError) as caught:
        load(owl, folder, members, **model)
    assert f"{type(caught.value).__name__}: {caught.value}\n" in PAGE


def test_an_unknown_architecture_is_answered_as_the_page_says(
    owl: ModuleType, folder: Path
) -> None:
    with pytest.raises(FirstlightError) as caught:
        LLM(folder / "owl")
    assert f"{type(caught.value).__name__}: {str(caught.value).partition('known are')[0]}" in PAGE


def boolean_index(self: Any, inputs: Any, plain: Any) -> Tensor:
    hidden, media = plain(self, inputs).clone(), inputs.planes["token_types"] == 1
    hidden[media] += inputs.embeds[media, 32:]
    result: Tensor = hidden
    return result


def mixed_rows(self: Any, inputs: Any, plain: Any) -> Tensor:
    hidden: Tensor = plain(self, inputs)
    return hidden - hidden.mean(dim=0)


UNOWNED = torch.ones(32)

FAILED_BUCKETS: dict[str, Callable[[Any, Any, Any], Tensor]] = {
    "boolean index": boolean_index,
    "host read": lambda s, i, plain: plain(s, i) * (i.planes["token_types"].max().item() + 1),
    "unowned": lambda s, i, plain: plain(s, i) * UNOWNED,
    "mixed rows": mixed_rows,
}


@pytest.mark.parametrize("fault", FAILED_BUCKETS)
def test_a_bucket_that_does_not_serve_says_what_the_page_says(
    fault: str, owl: ModuleType, folder: Path
) -> None:
    llm = load(owl, folder, own_body(owl, FAILED_BUCKETS[fault]))
    (bucket,) = llm.inspect()["buckets"]["prefill"]
    assert bucket["state"] == ("quarantined" if fault == "mixed rows" else "failed")
    # Line numbers and sizes are those of the case at hand.
    assert re.split(r" at /|, by up to", bucket["why"])[0] in PAGE


def test_a_declared_plane_that_nobody_reads_is_listed_as_the_page_says(
    owl: ModuleType, folder: Path
) -> None:
    def ignoring(self: Any, inputs: Any, plain: Any) -> Tensor:
        planes = {name: torch.zeros_like(p) for name, p in inputs.planes.items()}
        result: Tensor = plain(self, dataclasses.replace(inputs, planes=planes))
        return result

    llm = load(owl, folder, own_body(owl, ignoring))
    proof = llm.parts.captures[Phase.PREFILL].proof
    assert proof is not None
    (finding,) = proof.unread
    assert "plane token_types" in str(finding)
    assert (part := "no output depends on it (case: mixed)") in str(finding)
    assert part in PAGE


def test_a_picture_with_other_rows_than_places_is_refused_as_the_page_says(
    owl: ModuleType, folder: Path
) -> None:
    llm = load(owl, folder, {"image_rows": lambda self, tensors: 15})
    parts = [{"type": "image", "image": picture(32, 32)}, {"type": "text", "text": "?"}]
    with pytest.raises(FirstlightError) as caught:
        llm.chat([{"role": "user", "content": parts}], FEW)
    assert f"{type(caught.value).__name__}: {caught.value}\n" in PAGE
