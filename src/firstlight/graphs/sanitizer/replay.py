"""Replays a tape call by call, with every intermediate poisoned from its first to its last use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from firstlight.graphs.backends.tape.graph import Region, TapeGraph
from firstlight.graphs.backends.tape.record import OpCall, Place, leaves
from firstlight.graphs.sanitizer.memory import compact
from firstlight.graphs.sanitizer.poison import WORD, words
from firstlight.graphs.sanitizer.stepwise import Watch
from firstlight.graphs.sanitizer.trouble import Trouble


class CheckedReplay:
    """A graph with the lifetimes of its intermediates.

    Lifetimes are derived here from the operations alone, not taken from the memory plan, so that a
    wrong plan shows.
    """

    def __init__(self, graph: TapeGraph) -> None:
        self.graph = graph
        self.regions = {region.index: region for region in graph.regions}
        self.ops: Sequence[OpCall] = [step.op for step in graph.steps]
        self.lifetimes = lifetimes(self.ops, self.regions, output_region(graph))
        self._read = {output_region(graph)}.union(*(op.reads for op in self.ops))
        self._born: dict[int, list[int]] = defaultdict(list)
        self._dead: dict[int, list[int]] = defaultdict(list)
        for index, (first, last) in self.lifetimes.items():
            self._born[first].append(index)
            self._dead[last].append(index)
        self._tensors: dict[Place, Tensor] = {}

    def run(self, *, poison: bool, watch: Watch | None = None) -> Trouble | None:
        """Replay once.

        Args:
            poison: fill scratch memory first, each intermediate again right before its first use
                and after its last; what is no longer poison in between was written by a stranger.
            watch: called after each operation.

        Returns:
            the exception of an operation, or the first write into memory that was nobody's.
        """
        outside: Trouble | None = None
        with torch.inference_mode():
            if poison:
                self._fill_scratch()
            for i, (call, op) in enumerate(zip(self.graph.calls, self.ops, strict=False)):
                if poison:
                    outside = outside or self._begin(i)
                try:
                    call()
                except (IndexError, RuntimeError, ValueError, TypeError, ArithmeticError) as error:
                    text = " ".join(str(error).split())
                    return Trouble("raised", text, op.name, op.where, i)
                if watch is not None:
                    watch(i)
                if poison:
                    self._end(i)
            if poison:
                outside = outside or self._nobody_wrote()
        return outside

    @property
    def output(self) -> Tensor:
        """The captured output."""
        return self.graph.output

    @property
    def stages(self) -> Sequence[OpCall]:
        """The operations."""
        return self.ops

    @property
    def leaving(self) -> set[int]:
        """The output, and what is no scratch memory."""
        written = {index for op in self.ops for index in op.writes}
        last = output_region(self.graph)
        return {i for i in written if i == last or not self.regions[i].scratch}

    def results(self, step: int) -> list[Tensor]:
        """The intermediates that an operation writes and somebody reads."""
        return [self.tensor(place) for place in self.written(self.ops[step])]

    def writer_of(self, name: str, pool: Tensor) -> tuple[str, str] | None:
        """The first operation that writes the memory of ``pool``, with its line."""
        address = pool.untyped_storage().data_ptr()
        for op in self.ops:
            for index in op.writes:
                region = self.regions.get(index)
                if region is not None and region.storage.data_ptr() == address:
                    return op.name, op.where
        return None

    def tensor(self, place: Place) -> Tensor:
        """The replay's tensor at a recorded place."""
        found = self._tensors.get(place)
        if found is None:
            region = self.regions[place.storage]
            offset = region.offset // place.dtype.itemsize + place.offset
            with torch.inference_mode(False):
                found = torch.empty(0, dtype=place.dtype, device=region.storage.device)
                found.set_(region.storage, offset, place.size, place.stride)
            self._tensors[place] = found
        return found

    def written(self, op: OpCall) -> list[Place]:
        """Places of intermediates that ``op`` writes, results and arguments, and somebody reads.

        A result that nobody reads may have no memory that is written.
        """
        places = [p for p in op.outputs if p is not None]
        places += [
            p
            for p in leaves([op.args, op.kwargs])
            if isinstance(p, Place) and p.storage in op.writes
        ]
        return [p for p in places if p.storage in self.lifetimes and p.storage in self._read]

    def _begin(self, step: int) -> Trouble | None:
        """Poison what is born at ``step``; before that it must still be as it was left."""
        trouble = None
        for index in self._born.get(step, ()):
            region = self.regions[index]
            view = _words_of(region)
            if step and not bool(view.eq(WORD).all()):
                trouble = trouble or self._stranger(region, view, step)
            view.fill_(WORD)
        return trouble

    def _end(self, step: int) -> None:
        for index in self._dead.get(step, ()):
            _words_of(self.regions[index]).fill_(WORD)

    def _stranger(self, region: Region, view: Tensor, step: int) -> Trouble:
        wrong = view.ne(WORD).nonzero().flatten() * 2
        detail = (
            f"bytes {compact(wrong.tolist())} of the memory for {region.owner} were written before "
            f"its first use in step {step}"
        )
        return Trouble("outside", detail, self.ops[step - 1].name, self.ops[step - 1].where, step)

    def _fill_scratch(self) -> None:
        for view in self._blocks():
            view.fill_(WORD)

    def _nobody_wrote(self) -> Trouble | None:
        """Apart from the output, all scratch memory must be poison again."""
        output = output_region(self.graph)
        for view in self._blocks():
            wrong = view.ne(WORD)
            region = self.regions.get(output)
            if region is not None and region.scratch:
                start = region.storage.data_ptr() + region.offset - view.data_ptr()
                if 0 <= start < view.nbytes:
                    wrong[start // 2 : (start + region.end - region.start + 1) // 2] = False
            if bool(wrong.any()):
                where = compact((wrong.nonzero().flatten() * 2).tolist())
                return Trouble("outside", f"scratch bytes {where}, which no intermediate holds")
        return None

    def _blocks(self) -> Iterator[Tensor]:
        """Each scratch block as a whole, guard band included."""
        seen: dict[int, Region] = {}
        for index in self.lifetimes:
            region = self.regions[index]
            seen.setdefault(region.storage.data_ptr(), region)
        for region in seen.values():
            yield words(region.storage, 0, region.storage.nbytes())


def output_region(graph: TapeGraph) -> int:
    """The index of the region that holds the graph's output; -1 if there is none."""
    address = graph.output.data_ptr()
    storage = graph.output.untyped_storage().data_ptr()
    last = -1
    for region in graph.regions:
        inside = region.start <= address < max(region.end, region.start + 1)
        if inside and region.storage.data_ptr() == storage and _made_last(graph, region, last):
            last = region.index
    return last


def _made_last(graph: TapeGraph, region: Region, other: int) -> bool:
    """Of intermediates that take turns at an address, the output's is written last."""
    return other < 0 or _last_write(graph, region.index) > _last_write(graph, other)


def _last_write(graph: TapeGraph, index: int) -> int:
    steps = [i for i, step in enumerate(graph.steps) if index in step.op.writes]
    return steps[-1] if steps else -1


def lifetimes(
    ops: Sequence[OpCall], regions: dict[int, Region], output: int
) -> dict[int, tuple[int, int]]:
    """First and last step at which each intermediate is touched; the output lives to the end."""
    found: dict[int, tuple[int, int]] = {}
    for step, op in enumerate(ops):
        for index in {*op.reads, *op.writes}:
            region = regions.get(index)
            if region is not None and region.scratch:
                found[index] = (found.get(index, (step, step))[0], step)
    if output in found:
        found[output] = (found[output][0], len(ops))
    return found


def _words_of(region: Region) -> Tensor:
    return words(region.storage, region.offset, region.offset + region.end - region.start)
