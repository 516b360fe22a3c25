"""One turn at a time, each whole: what ends in the middle begins anew."""

from __future__ import annotations

import threading

import pytest

from firstlight.engine.turns import Turns
from firstlight.errors import BusyError


class Books:
    """Counts who left and how often all began anew."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self.anew = 0
        self.fails = 0
        self.turns: Turns[str] = Turns(self.left.append, self.begin_anew)

    def begin_anew(self) -> None:
        self.anew += 1
        if self.fails:
            self.fails -= 1
            raise KeyboardInterrupt


def test_a_second_turn_is_refused_while_one_is_taken() -> None:
    books = Books()
    with books.turns.take(), pytest.raises(BusyError), books.turns.take():
        pass
    with books.turns.take():
        pass
    assert books.anew == 0


def test_who_leaves_during_a_turn_goes_at_its_end() -> None:
    books = Books()
    with books.turns.take():
        books.turns.leave(["a", "b"])
        assert books.left == []
    assert books.left == ["a", "b"]


def test_who_leaves_in_another_thread_goes_at_the_end_of_the_turn() -> None:
    books = Books()
    with books.turns.take():
        thread = threading.Thread(target=books.turns.leave, args=(["a"],))
        thread.start()
        thread.join()
        assert books.left == []
    assert books.left == ["a"]


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyboardInterrupt])
def test_an_exception_that_ends_a_turn_begins_anew_and_leaves_it(error: type) -> None:
    books = Books()
    with pytest.raises(error), books.turns.take():
        raise error
    assert books.anew == 1
    with books.turns.take():
        pass
    assert books.anew == 1


def test_beginning_anew_that_is_cut_short_is_done_again_at_the_next_turn() -> None:
    books = Books()
    books.fails = 1
    with pytest.raises(KeyboardInterrupt), books.turns.take():
        raise RuntimeError
    assert books.anew == 1
    with books.turns.take():
        assert books.anew == 2
