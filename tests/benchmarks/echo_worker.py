"""An engine for tests: answers count up from the last id of the prompt."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.workers.loop import Answer, Load, Request, serve


class Echo:
    """Does what the text of a request says."""

    def __init__(self, load: Load) -> None:
        if load.model == "missing":
            raise FileNotFoundError("no such model\nand a second line")
        self._threads = load.threads

    def run(self, requests: Sequence[Request], max_tokens: int) -> Answer:
        """Counts up."""
        match requests[0].text:
            case "print":
                print("a library says something")
            case "fail":
                raise ValueError("not this one")
            case "end":
                os._exit(3)
            case "sleep":
                time.sleep(30)
            case "short":
                max_tokens -= 1
        ids = [[request.ids[-1] + 1 + i for i in range(max_tokens)] for request in requests]
        return Answer(0.25, 0.5, ids)

    def facts(self) -> dict[str, Any]:
        """Where it runs."""
        return {"cpus": sorted(os.sched_getaffinity(0)), "threads": self._threads}


if __name__ == "__main__":
    serve(Echo, ("pytest", "no-such-package"))
