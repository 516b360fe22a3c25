"""firstlight through its public Python API; options are fields of its configuration.

One more, ``start`` = ``command``, starts as the commands do in a process of their own.
"""

from __future__ import annotations

from benchmarks.peers.workers.loop import Answer, Load, Request, serve
from firstlight.config import wait_briefly

wait_briefly()  # before torch is loaded, as the command line does

import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from contextlib import nullcontext  # noqa: E402
from typing import Any  # noqa: E402

from firstlight import SamplingParams  # noqa: E402
from firstlight.cli.quick_start import quick_start  # noqa: E402
from firstlight.config import EngineConfig  # noqa: E402


class Firstlight:
    """An ``LLM`` with the driver's threads and context, everything else as by default."""

    def __init__(self, load: Load) -> None:
        settings: dict[str, Any] = {
            "dtype": load.dtype,
            "threads": load.threads,
            "max_context": load.context,
        }
        settings |= load.options
        as_command = settings.pop("start", None) == "command"
        config = EngineConfig.from_options({"model": load.model, **settings})
        with quick_start(cache_dir=config.cache_dir) if as_command else nullcontext():
            from firstlight import LLM

            self._llm = LLM(config=config, late=as_command)

    def run(self, requests: Sequence[Request], max_tokens: int) -> Answer:
        """All requests in one call."""
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        prompts = [request.text for request in requests]
        images = [request.images for request in requests]
        began = time.perf_counter()
        answers = self._llm.generate(prompts, params, images=images)
        total = time.perf_counter() - began
        for answer in answers:
            if answer.error is not None:
                raise RuntimeError(answer.error)
        # What the call takes outside a request's own clock counts as before its first token.
        outside = total - max(answer.timings.total_s for answer in answers)
        return Answer(
            ttft_s=outside + min(answer.timings.ttft_s for answer in answers),
            total_s=total,
            ids=[list(answer.token_ids) for answer in answers],
            prompt_tokens=[answer.usage.prompt_tokens for answer in answers],
        )

    def facts(self) -> dict[str, Any]:
        """Bytes that the engine states, and what served."""
        told = self._llm.inspect()
        return {
            "bytes": {
                row["kind"]: row["bytes"]
                for row in told["bytes"]
                if row["phase"] is None and row["kind"] != "all"
            },
            "backend": told["backend"],
            "capture_s": self._llm.capture_seconds,
            "decisions": told["decisions"],
        }


if __name__ == "__main__":
    serve(Firstlight, ("firstlight", "torch", "transformers"))
