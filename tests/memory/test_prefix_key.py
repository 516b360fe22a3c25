from __future__ import annotations

import pytest

from firstlight.core.span import Span
from firstlight.memory import MediaKey, PrefixKey
from firstlight.memory.prefix_key import common_length, contents_of

PAD = 9  # the placeholder id of every picture


def _picture(identity: str, start: int, end: int, row: int = 0) -> MediaKey:
    return MediaKey(identity, (Span(0, start, end, row),))


def _keys(key: PrefixKey) -> list[object]:
    return [key.page(i) for i in range(key.n_pages)]


def test_text_pages_are_their_token_ids_and_only_full_pages_count() -> None:
    assert _keys(PrefixKey([1, 2, 3, 4, 5], [], 2)) == [(1, 2), (3, 4)]


def test_the_same_placeholders_of_two_pictures_are_different_pages() -> None:
    ids = [1, PAD, PAD, PAD, 2, 3]
    one = _keys(PrefixKey(ids, [_picture("a", 1, 4)], 2))
    two = _keys(PrefixKey(ids, [_picture("b", 1, 4)], 2))
    assert [x == y for x, y in zip(one, two, strict=True)] == [False, False, True]


def test_swapped_pictures_are_different_pages() -> None:
    ids = [PAD, PAD, 5, 5, PAD, PAD]
    one = PrefixKey(ids, [_picture("a", 0, 2), _picture("b", 4, 6)], 2)
    two = PrefixKey(ids, [_picture("b", 0, 2), _picture("a", 4, 6)], 2)
    assert one.page(0) == two.page(2) != one.page(2) == two.page(0)
    assert one.page(1) == two.page(1)


def test_the_rows_of_a_picture_tell_its_pages_apart() -> None:
    key = PrefixKey([PAD] * 6, [_picture("a", 0, 6)], 2)
    assert len(set(_keys(key))) == 3


def test_the_placeholder_id_has_no_part_in_the_key() -> None:
    one = PrefixKey([7, 7], [_picture("a", 0, 2)], 2)
    two = PrefixKey([8, 8], [_picture("a", 0, 2)], 2)
    assert one.page(0) == two.page(0)


def test_text_is_never_taken_for_media_nor_media_for_fewer_rows() -> None:
    text = PrefixKey([PAD, PAD], [], 2).page(0)
    media = PrefixKey([PAD, PAD], [_picture("a", 0, 2)], 2).page(0)
    mixed = PrefixKey([PAD, PAD], [_picture("a", 0, 1)], 2).page(0)
    assert len({text, media, mixed}) == 3


def test_separators_inside_a_picture_keep_their_ids() -> None:
    item = MediaKey("a", (Span(0, 0, 2, 0), Span(0, 3, 5, 2)))
    one = PrefixKey([PAD, PAD, 1, PAD, PAD], [item], 5)
    two = PrefixKey([PAD, PAD, 2, PAD, PAD], [item], 5)
    assert one.page(0) == (("a", 0, 2), 1, ("a", 2, 2))
    assert one.page(0) != two.page(0)


def test_a_prefix_cuts_an_item_from_its_first_span_to_its_last() -> None:
    item = MediaKey("a", (Span(0, 2, 4, 0), Span(0, 5, 7, 2)))
    key = PrefixKey(list(range(10)), [item], 2)
    assert [p for p in range(11) if key.ends_inside(p)] == [3, 4, 5, 6]
    assert [key.last_border(p) for p in range(9)] == [0, 1, 2, 2, 2, 2, 2, 7, 8]


def test_a_prefix_between_two_touching_items_cuts_neither() -> None:
    key = PrefixKey([PAD] * 6, [_picture("a", 0, 3), _picture("b", 3, 6)], 2)
    assert [p for p in range(7) if key.ends_inside(p)] == [1, 2, 4, 5]


def test_items_that_interleave_are_cut_at_neither_end() -> None:
    one = MediaKey("a", (Span(0, 1, 2), Span(0, 4, 5, 1)))
    two = MediaKey("b", (Span(1, 3, 4), Span(1, 6, 7, 1)))
    key = PrefixKey([PAD] * 9, [one, two], 2)
    assert [p for p in range(10) if key.ends_inside(p)] == [2, 3, 4, 5, 6]


def test_generated_tokens_make_further_pages() -> None:
    ids = [1, 2, 3]
    key = PrefixKey(ids, [], 2)
    key.extend([4, 5])
    assert _keys(key) == [(1, 2), (3, 4)]
    assert (key.length, ids) == (5, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("index", [-1, 2])
def test_a_page_that_is_not_full_has_no_key(index: int) -> None:
    with pytest.raises(IndexError, match="of 2 full pages"):
        PrefixKey([1, 2, 3, 4, 5], [], 2).page(index)


@pytest.mark.parametrize("spans", [[(0, 0)], [(2, 9)], [(0, 3), (2, 4)], [(-1, 2)]])
def test_spans_that_make_no_sense_are_refused(spans: list[tuple[int, int]]) -> None:
    media = [_picture("a", start, end) for start, end in spans]
    with pytest.raises(ValueError, match="media span"):
        PrefixKey([PAD] * 6, media, 2)


def test_contents_name_a_token_or_a_row_of_an_item_for_each_position() -> None:
    key = PrefixKey([1, PAD, PAD, PAD, 2], [_picture("a", 1, 4, row=5)], 8)
    contents = contents_of(key.between(0, 5))
    assert contents == ((1, ""), (5, "a"), (6, "a"), (7, "a"), (2, ""))
    assert contents_of(key.between(2, 4)) == contents[2:4]
    assert contents_of(key.between(3, 3)) == ()


def test_what_two_contents_have_in_common_ends_where_they_part() -> None:
    one = contents_of((1, 2, 3))
    assert common_length(one, contents_of((1, 2, 4, 3))) == 2
    assert common_length(one, one[:2]) == 2
    assert common_length(one, contents_of((("a", 1, 3),))) == 0
