"""Print what a model feeds its decoder per token, and what was captured for it.

python examples/inspect_contract.py [MODEL]
"""

from __future__ import annotations

import sys

from firstlight import LLM


def main(arguments: list[str]) -> None:
    """Print the segments of a row, the static buffers and the graphs."""
    # A few buckets are enough to look at; the default ladder has many.
    llm = LLM(*arguments, prefill_buckets=[64, 128], max_num_seqs=1)
    report = llm.inspect()
    origin = "declared" if report["declared"] else "the default"
    print(f"{report['architecture']}: a row has {report['input_embeds_hidden_size']} columns")
    print(f"  ({origin}; hidden_size is {report['hidden_size']})")
    for segment in report["segments"]:
        end = segment["start"] + segment["width"]
        print(f"  columns {segment['start']:5} to {end:5}  {segment['name']}")
    for slot in report["slots"]:
        print(f"  slot {slot['name']:24} {slot['shape']} {slot['dtype']}, {slot['bytes']} bytes")
    for phase, graphs in report["buckets"].items():
        for graph in graphs:
            print(f"  {phase} graph {graph['size']:5}: {graph['bytes']} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
