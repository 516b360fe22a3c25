from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.memory import VIRTUAL_SINK, PrefixKey, VirtualPage
from firstlight.memory.prefix_tree import PrefixTree


def _key(text: str) -> PrefixKey:
    """One token, and one page, a letter."""
    return PrefixKey([ord(letter) for letter in text], [], 1)


def _insert(tree: PrefixTree, text: str, pages: list[int]) -> list[VirtualPage]:
    """Cache what is new of ``text`` at ``pages`` and return the whole path."""
    key = _key(text)
    path: list[VirtualPage] = []
    for i in range(key.n_pages):
        parent = path[-1] if path else VIRTUAL_SINK
        page = tree.child(parent, key.page(i))
        if page is None:
            page = VirtualPage(pages[i])
            tree.insert(parent, key.page(i), page)
        path.append(page)
    return path


def _rest(tree: PrefixTree, path: list[VirtualPage]) -> None:
    tree.rest(path[::-1])


def test_a_match_ends_where_the_contents_differ() -> None:
    tree = PrefixTree()
    _insert(tree, "abcd", [1, 2, 3, 4])
    assert tree.match(_key("abxd"), 9) == [1, 2]
    assert tree.match(_key("abcdef"), 9) == [1, 2, 3, 4]
    assert tree.match(_key("bcd"), 9) == []


def test_a_match_is_no_longer_than_asked() -> None:
    tree = PrefixTree()
    _insert(tree, "abcd", [1, 2, 3, 4])
    assert tree.match(_key("abcd"), 3) == [1, 2, 3]


def test_equal_pages_behind_different_ones_are_different() -> None:
    tree = PrefixTree()
    _insert(tree, "ax", [1, 2])
    _insert(tree, "bx", [3, 4])
    assert tree.match(_key("bx"), 9) == [3, 4]


def test_the_path_used_longest_ago_goes_first_and_from_its_end() -> None:
    tree = PrefixTree()
    old, new = _insert(tree, "abc", [1, 2, 3]), _insert(tree, "xy", [4, 5])
    _rest(tree, old)
    _rest(tree, new)
    assert [tree.evict() for _ in range(5)] == [3, 2, 1, 5, 4]


def test_using_a_path_again_keeps_it_longer() -> None:
    tree = PrefixTree()
    one, two = _insert(tree, "ab", [1, 2]), _insert(tree, "xy", [4, 5])
    _rest(tree, one)
    _rest(tree, two)
    tree.use(one)
    _rest(tree, one)
    assert [tree.evict() for _ in range(4)] == [5, 4, 2, 1]


def test_a_shared_beginning_outlives_all_that_continues_it() -> None:
    tree = PrefixTree()
    one, two = _insert(tree, "abc", [1, 2, 3]), _insert(tree, "abd", [0, 0, 4])
    _rest(tree, one)
    tree.use(two)
    _rest(tree, two)
    assert [tree.evict() for _ in range(4)] == [3, 4, 2, 1]


def test_pages_in_use_are_never_evicted() -> None:
    tree = PrefixTree()
    path = _insert(tree, "abc", [1, 2, 3])
    _rest(tree, path[2:])
    assert (tree.n_idle, tree.evict()) == (1, 3)
    with pytest.raises(KeyError):
        tree.evict()
    assert tree.match(_key("abc"), 9) == [1, 2]


def test_an_evicted_page_is_not_found_and_can_be_cached_again() -> None:
    tree = PrefixTree()
    _rest(tree, _insert(tree, "ab", [1, 2]))
    tree.evict()
    assert VirtualPage(2) not in tree
    assert tree.match(_key("ab"), 9) == [1]
    assert _insert(tree, "ab", [0, 7]) == [1, 7]


def test_two_pages_with_the_same_contents_are_refused() -> None:
    tree = PrefixTree()
    _insert(tree, "a", [1])
    for parent, page in ((VIRTUAL_SINK, 2), (1, 1)):
        with pytest.raises(ValueError, match="cached already"):
            tree.insert(VirtualPage(parent), _key("a").page(0), VirtualPage(page))


def test_clearing_returns_every_cached_page() -> None:
    tree = PrefixTree()
    _rest(tree, _insert(tree, "ab", [1, 2])[1:])
    assert sorted(tree.clear()) == [1, 2]
    assert (len(tree), tree.n_idle, tree.match(_key("ab"), 9)) == (0, 0, [])


@given(
    kept=st.sets(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), max_size=9),
    asked=st.lists(st.integers(0, 2), max_size=4).map(tuple),
    gone=st.integers(0, 9),
)
def test_the_nearest_page_has_the_longest_common_beginning_of_all(
    kept: set[tuple[int, ...]], asked: tuple[int, ...], gone: int
) -> None:
    tree = PrefixTree()
    for page, key in enumerate(sorted(kept, key=hash), start=1):
        tree.insert(VIRTUAL_SINK, key, VirtualPage(page))
        tree.rest([VirtualPage(page)])
    for _ in range(min(gone, len(kept))):
        tree.evict()
    found, rows = tree.nearest(VIRTUAL_SINK, asked)
    keys = {page: key for page, _, key in tree.items()}
    common = {
        page: next((n for n in range(4, 0, -1) if key[:n] == asked[:n] and n <= len(key)), 0)
        for page, key in keys.items()
    }
    common = {page: min(n, len(asked)) for page, n in common.items()}
    assert rows == max(common.values(), default=0)
    assert found == VIRTUAL_SINK if rows == 0 else common[found] == rows


def test_a_page_that_is_taken_out_is_not_found_any_more() -> None:
    tree = PrefixTree()
    path = _insert(tree, "abc", [1, 2, 3])
    _rest(tree, path)
    tree.take_out(path[2])
    assert tree.match(_key("abc"), 3) == path[:2]
    assert tree.nearest(path[1], (ord("c"),)) == (VIRTUAL_SINK, 0)
    assert tree.n_idle == 2
    with pytest.raises(KeyError):
        tree.take_out(path[2])
