"""A pytest fixture for authors of adapters: load a checkpoint under the sanitizer, expect silence.

In the project's ``conftest.py``::

    pytest_plugins = ["firstlight.testing"]

and in a test::

    def test_my_model_is_clean(sanitized):
        sanitized("path/to/checkpoint", adapters=my_registry)

The checkpoint should be tiny: every batch runs several times. The fixture runs a text prompt, a
picture, several requests together and prompts that are prefilled in chunks, through captured graphs
of several sizes. The test fails with the list of findings, each naming the slot or operation, the
bucket and the line of the adapter's or the model's own file. Further prompts can be run on the
engine that it returns; what they turn up fails the test at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.llm import LLM
from firstlight.engine.samples import Conversation, picture, standard_batches, turn
from firstlight.graphs.sanitizer import Finding
from firstlight.models.registry import AdapterRegistry

__all__ = ["SETTINGS", "SanitizedEngines", "picture", "sanitized", "standard_batches", "turn"]

SETTINGS: Mapping[str, Any] = {
    "dtype": "float32",
    "max_num_seqs": 3,
    "page_size": 4,
    "prefill_buckets": (16, 64),
    "max_batch_tokens": 64,  # longer prompts are prefilled in chunks
    "decode_buckets": (1, 3),
    "padding_cost": "free",  # graphs run however small the batch
}
"""Settings of a sanitized engine: few graphs, small pages, short chunks."""


class SanitizedEngines:
    """Builds engines with the sanitizer on, and remembers them.

    Args:
        prompts: what a call runs, in order, for a model that takes pictures or not; each entry is
            one batch of conversations.
    """

    def __init__(
        self, prompts: Callable[[bool], Sequence[list[Conversation]]] | None = None
    ) -> None:
        self._prompts = prompts or standard_batches
        self._engines: list[LLM] = []

    def __call__(
        self,
        model: str | Path,
        *,
        adapters: AdapterRegistry | None = None,
        max_tokens: int = 3,
        **settings: Any,
    ) -> LLM:
        """Load ``model``, run the standard prompts, and fail the test if anything was found.

        Args:
            adapters: architectures and their adapters, if your own is among them.
            max_tokens: tokens that each request generates.
            settings: fields of :class:`firstlight.config.EngineConfig`; they go before
                :data:`SETTINGS`.
        """
        llm = LLM(model, adapters=adapters, **{**SETTINGS, "sanitize": True, **settings})
        self._engines.append(llm)
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        for batch in self._prompts(llm.parts.model.image_processor is not None):
            llm.chat(batch, params)
        self.check()
        return llm

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything found so far, by all engines."""
        return tuple(finding for llm in self._engines for finding in llm.findings)

    def check(self) -> None:
        """Fail the running test if anything was found."""
        if self.findings:
            number = len(self.findings)
            lines = "\n".join(f"  {finding}" for finding in self.findings)
            head = f"the sanitizer has {number} finding{'' if number == 1 else 's'}:"
            pytest.fail(f"{head}\n{lines}", pytrace=False)


@pytest.fixture
def sanitized() -> Iterator[SanitizedEngines]:
    """``sanitized(checkpoint)`` loads it under the sanitizer and runs the standard prompts."""
    engines = SanitizedEngines()
    yield engines
    engines.check()
