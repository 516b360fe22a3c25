"""What a prompt's pictures are called in the prefix cache."""

from __future__ import annotations

from firstlight.core.span import Span
from firstlight.engine.media_items import MediaItem, prefix_media
from firstlight.memory import KVLayout, KVMemory, PrefixKey

PAD = 99


def items(*pictures: tuple[str, int, int]) -> list[MediaItem]:
    """Pictures as (key, start, rows)."""
    return [
        MediaItem(i, key, rows, (Span(i, start, start + rows),))
        for i, (key, start, rows) in enumerate(pictures)
    ]


def test_pictures_of_a_causal_model_keep_their_keys() -> None:
    media = prefix_media(items(("a", 2, 4), ("b", 6, 4)))
    assert [m.identity for m in media] == ["a", "b"]


def test_a_picture_alone_in_its_block_keeps_its_key() -> None:
    media = prefix_media(items(("a", 2, 4), ("b", 7, 4)), [(2, 6), (7, 11)])
    assert [m.identity for m in media] == ["a", "b"]


def test_pictures_of_one_block_are_known_by_all_of_it_and_their_place() -> None:
    block = [(2, 10)]
    pair = prefix_media(items(("a", 2, 4), ("b", 6, 4)), block)
    swapped = prefix_media(items(("b", 2, 4), ("a", 6, 4)), block)
    twice = prefix_media(items(("a", 2, 4), ("a", 6, 4)), block)
    names = [m.identity for media in (pair, swapped, twice) for m in media]
    assert len({*names, "a", "b"}) == 8


def test_a_picture_that_saw_the_one_behind_it_is_not_reused_alone() -> None:
    memory = KVMemory(KVLayout.of([None], 100), 40, [40], 4, True)

    def cached(pictures: list[MediaItem], blocks: list[tuple[int, int]], text: int) -> int:
        rows = sum(item.rows for item in pictures)
        key = PrefixKey([PAD] * rows + list(range(text)), prefix_media(pictures, blocks), 4)
        holding = memory.start(key, key.length - 1)
        assert memory.reserve(holding, key.length)
        memory.publish(holding, key, key.length)
        memory.release(holding)
        return holding.cached

    both, alone = items(("a", 0, 4), ("b", 4, 4)), items(("a", 0, 4))
    assert cached(both, [(0, 8)], 3) == 0
    assert cached(alone, [(0, 4)], 7) == 0
    assert cached(both, [(0, 8)], 3) == 8
    assert cached(alone, [(0, 4)], 7) == 8
