"""Whether the engines say the same, and how good each token is under an exact reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.peers.client import Worker
from benchmarks.peers.engines import ENGINES, REFERENCE, Form
from benchmarks.peers.session import GroupResult, Said

EQUAL_PRECISION: Final = frozenset({Form.CHECKPOINT, Form.OPENVINO, Form.CT2_BF16, Form.BUNDLED})
"""Forms whose weights are the checkpoint's, bit for bit in bfloat16."""

REGRET: Final = 0.5
"""How far below the best logit of a float32 run a bfloat16 engine's token may lie: the logits of
these models reach 20 to 40, where bfloat16 steps by 0.125."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """An engine's answers of a group beside the reference's.

    Attributes:
        equal, tokens: tokens before the first that differs from transformers' bfloat16 answer,
            added up over the answers, None where it gave none; and all tokens.
        regret: the worst distance of a token's logit from the best one, in a float32 run of
            transformers over the engine's own answer; None if nobody could tell.
        must: whether the precision is equal, so that ``regret`` is judged.
    """

    equal: int | None
    tokens: int
    regret: float | None
    must: bool

    @property
    def holds(self) -> bool | None:
        """Whether every token is among the best; None where that is not to be expected."""
        return self.regret <= REGRET if self.must and self.regret is not None else None


def agreements(result: GroupResult, reference: Worker | None) -> dict[str, Agreement]:
    """Of each engine that answered.

    Args:
        reference: transformers with the same weights in float32; None leaves the regrets out.
    """
    found = {}
    for engine in result.started:
        said = {key: each for key, each in result.said.items() if engine in each.ids}
        if engine in result.absent or not said:
            continue
        equal = _equal(said, engine)
        tokens = sum(len(each.ids[engine]) for each in said.values())
        form = ENGINES[engine].forms[result.group]
        regret = None if reference is None else _worst(said, engine, reference)
        found[engine] = Agreement(equal, tokens, regret, form in EQUAL_PRECISION)
    return found


def common_prefix(ours: list[int], theirs: list[int]) -> int:
    """Tokens before the first that differs."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return i
    return min(len(ours), len(theirs))


def _equal(said: Mapping[str, Said], engine: str) -> int | None:
    if not all(REFERENCE in each.ids for each in said.values()):
        return None
    return sum(common_prefix(each.ids[engine], each.ids[REFERENCE]) for each in said.values())


def _worst(said: Mapping[str, Said], engine: str, reference: Worker) -> float:
    return max(max(reference.score(each.request, each.ids[engine])) for each in said.values())
