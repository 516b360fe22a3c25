"""Static memory: shared by name and size, never moved."""

from __future__ import annotations

import torch

from firstlight.graphs import Arena


def test_equal_requests_share_memory() -> None:
    arena = Arena()
    first, fresh = arena.buffer("a", (4, 2), torch.float32)
    again, reused = arena.buffer("a", (8,), torch.float32)
    assert (fresh, reused) == (True, False)
    assert again.shape == (8,)
    assert first.data_ptr() == again.data_ptr()


def test_another_name_size_or_dtype_has_memory_of_its_own() -> None:
    arena = Arena()
    requests = [("a", 4, torch.float32), ("b", 4, torch.float32), ("a", 5, torch.float32),
                ("a", 4, torch.int32)]  # fmt: skip
    pointers = {arena.buffer(name, (n,), dtype)[0].data_ptr() for name, n, dtype in requests}
    assert len(pointers) == 4


def test_a_larger_request_displaces_nothing() -> None:
    arena = Arena()
    small, _ = arena.buffer("a", (4,), torch.float32)
    address = small.data_ptr()
    arena.buffer("a", (400,), torch.float32)
    again, fresh = arena.buffer("a", (4,), torch.float32)
    assert (again.data_ptr(), fresh) == (address, False)


def test_two_arenas_share_nothing() -> None:
    a, b = (Arena().buffer("a", (4,), torch.float32)[0] for _ in range(2))
    assert a.data_ptr() != b.data_ptr()


def test_buffers_made_in_inference_mode_can_be_written_outside() -> None:
    with torch.inference_mode():
        buf, _ = Arena().buffer("a", (4,), torch.float32)
    buf.add_(1)
    assert buf.eq(1).all()


def test_the_bytes_are_those_of_all_buffers() -> None:
    arena = Arena()
    arena.buffer("a", (4,), torch.float32)
    arena.buffer("a", (4,), torch.float32)
    arena.buffer("b", (3,), torch.int64)
    assert arena.bytes == 16 + 24
