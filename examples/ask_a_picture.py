"""Ask the bundled model about a picture, and see what ran from graphs.

python examples/ask_a_picture.py [PICTURE QUESTION]
"""

from __future__ import annotations

import sys
from pathlib import Path

from firstlight import LLM, SamplingParams
from firstlight.demo import pictures


def main(arguments: list[str]) -> None:
    """Print the answer, then one line per step."""
    if not arguments:
        shipped = pictures()[0]
        arguments = [str(shipped.path), shipped.question]
    picture, question = arguments
    llm = LLM()
    message = {
        "role": "user",
        "content": [
            {"type": "image", "image": Path(picture)},
            {"type": "text", "text": question},
        ],
    }
    answer = llm.chat([message], SamplingParams(temperature=0))
    print(f"{question} {answer.text}")
    for step in answer.timings.steps:
        decision = step.decision
        print(
            f"  {decision.phase.value:7}  {decision.mode.value:5}  bucket {decision.bucket}  "
            f"{decision.tokens} rows  {step.seconds * 1e3:.2f} ms  {decision.reason.value}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
