"""Faults that cannot occur, why, and the test that shows the construction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Construction:
    """A fault that users met elsewhere and that there is no way to make here.

    Attributes:
        what: the fault.
        seen_at: where users met it.
        why: what stands in its way.
        test: the test in ``tests/faults/test_constructions.py``.
    """

    what: str
    seen_at: str
    why: str
    test: str


CONSTRUCTIONS = (
    Construction(
        "An index slot whose padding is not the sink.",
        "sglang 24361, 34184; vllm 43810",
        "The declaration of such a slot is refused, whatever policy it names.",
        "test_an_index_slot_that_does_not_pad_to_the_sink_cannot_be_declared",
    ),
    Construction(
        "An index plane whose neutral value addresses something.",
        "sglang 38330",
        "Resolving the contract refuses it.",
        "test_an_index_plane_with_another_neutral_value_than_the_sink_is_refused",
    ),
    Construction(
        "Two buffers under one name, of which the graph reads one.",
        "variant of vllm 10891 (case H05)",
        "A slot can be registered once; a plane cannot take the name of a slot.",
        "test_a_slot_is_registered_once",
    ),
    Construction(
        "Eager looks up embeddings, and the graph holds one of two branches.",
        "sglang 30765, 30620; vllm 35917",
        "A body is given rows. It gets no token ids, so there is no second branch to capture.",
        "test_a_body_gets_rows_and_no_token_ids",
    ),
    Construction(
        "A keyword argument that a replay drops.",
        "sglang 33726; vllm 43716",
        "A replay takes no arguments; all that a graph reads is a slot, a weight or a pool.",
        "test_a_replay_takes_no_arguments",
    ),
    Construction(
        "Fill, capture and replay decide twice, differently.",
        "LightLLM 1149, 1155; sglang 37561",
        "The decision is made once and given to the fill and the run; neither asks again.",
        "test_the_decision_is_carried_and_not_made_again",
    ),
    Construction(
        "A buffer that grows after a capture, and a graph that keeps the old address.",
        "sglang 37043, 30474",
        "A request of another size gets memory of its own; what was handed out stays.",
        "test_a_buffer_that_was_handed_out_never_moves",
    ),
    Construction(
        "Memory between pieces that is freed while a graph still reads it.",
        "sglang 37606, 37448, 30584",
        "Scratch blocks are kept for the life of the arena, however many graphs are captured.",
        "test_scratch_memory_is_never_resized_or_freed",
    ),
    Construction(
        "Graphs that were asked for explicitly skip the rules that would refuse them.",
        "omni 1379, 1458; sglang 38943",
        "A list that a user typed goes through the same checks, and then starts or fails.",
        "test_a_bucket_that_was_asked_for_and_can_never_replay_is_refused",
    ),
    Construction(
        "A quarantined graph that serves all the same.",
        "omni 1357",
        "Only a bucket that is ready is ever decided for.",
        "test_a_quarantined_bucket_is_never_decided_for",
    ),
    Construction(
        "The live boundary of a rank that is counted against the raw length.",
        "sglang TestPrefillNumTokenNonPadded",
        "It is computed in one place, from the bucket, and the shares add up to the live rows.",
        "test_the_live_rows_of_all_ranks_add_up_whatever_the_bucket",
    ),
    Construction(
        "A map from virtual to physical pages that is sized by its own pool.",
        "sglang 37560",
        "A memory makes every side's map, each as long as the space of virtual pages.",
        "test_every_map_has_an_entry_for_each_virtual_page",
    ),
    Construction(
        "A page number where a token slot belongs.",
        "sglang 38187, 29858",
        "Maps hold pages and give pages; token slots go through another function, which divides.",
        "test_a_page_is_translated_once_at_any_page_size",
    ),
)
