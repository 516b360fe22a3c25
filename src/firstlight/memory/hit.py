"""What the prefix cache has of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firstlight.memory.ids import VIRTUAL_SINK, VirtualPage, pages_for
from firstlight.memory.prefix_key import PrefixKey
from firstlight.memory.prefix_tree import PrefixTree
from firstlight.memory.window_side import WindowSide


@dataclass(frozen=True, slots=True)
class Hit:
    """A cached beginning.

    Attributes:
        pages: full pages, from position 0 on.
        source: the page that begins with what follows them; the sink if none does.
        rows: leading positions of ``source`` that belong to the hit; fewer than a page.
        end: tokens in all.
        known: full pages whose contents are cached, also where a windowed side has lost them.
        is_longest: whether it covers all that it was allowed to.
    """

    pages: Sequence[VirtualPage]
    source: VirtualPage
    rows: int
    end: int
    known: int
    is_longest: bool


def find_hit(
    tree: PrefixTree, windows: Sequence[WindowSide], key: PrefixKey, limit: int, *, by_token: bool
) -> Hit:
    """The longest beginning of a prompt that the cache has and that can be gone on from.

    It is shorter than the prompt, never ends inside a media item, and each windowed side still has
    the keys that the next query sees.

    Args:
        limit: tokens that it may cover at most.
        by_token: whether it may end inside a page.
    """
    size = key.page_size
    limit = max(min(limit, key.length - 1), 0)
    path = tree.match(key, limit // size)
    known, end = len(path), len(path) * size
    if by_token:
        follows = key.between(end, min(end + size, limit))
        source, rows = tree.nearest(path[-1] if path else VIRTUAL_SINK, follows)
        path += [source] if rows else []
        end += rows
    end = _usable(windows, key, path, end, 1 if by_token else size)
    n, rows = divmod(end, size)
    return Hit(path[:n], path[n] if rows else VIRTUAL_SINK, rows, end, known, end == limit)


def _usable(
    windows: Sequence[WindowSide],
    key: PrefixKey,
    path: Sequence[VirtualPage],
    end: int,
    grain: int,
) -> int:
    """How many of the first ``end`` tokens, which ``path`` has, make a valid hit; a multiple of
    ``grain``."""
    before = -1
    while end != before:
        before = end
        end = key.last_border(end) // grain * grain
        end = _bound_end(windows, key.page_size, path, end)
    return end


def _bound_end(
    windows: Sequence[WindowSide], size: int, path: Sequence[VirtualPage], end: int
) -> int:
    """``end`` if each windowed side has what the query behind so many tokens sees, else less."""
    for side in windows:
        first = side.spec.first_seen(end) // size
        for at in reversed(range(first, pages_for(end, size))):
            if not side.map.is_bound(path[at]):
                # Every hit that ends between here and `end` misses this page as well.
                return at * size
    return end
