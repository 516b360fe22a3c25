"""How long a picture may be for its width before a model's own processor refuses it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, Final

_SHORT: Final = 1 << 14  # above every factor that sides are rounded to
_END: Final = 1 << 12  # a line; no processor with a limit accepts it


def side_ratio_limit(processor: Any) -> float | None:
    """The largest whole ratio of long to short side that a transformers processor accepts.

    Processors that round sizes do it in a function ``smart_resize`` of their module, which raises
    over a ratio that no setting tells. It is asked; nothing is resized.

    Returns:
        None where there is no such function, or it has no limit.
    """
    module = sys.modules.get(type(processor).__module__)
    accepts = _asked(getattr(module, "smart_resize", None))
    if accepts is None or not accepts(1) or accepts(_END):
        return None
    low, high = 1, _END
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if accepts(middle) else (low, middle)
    return float(low)


def _asked(resize: object) -> Callable[[int], bool] | None:
    """Whether a ratio passes; None for a function that is called in a way we do not know."""
    if not callable(resize):
        return None
    known = {"num_frames": 2, "t": 2, "temporal_factor": 2, "factor": 28}
    parameters = inspect.signature(resize).parameters.values()
    required = {p.name for p in parameters if p.default is p.empty}
    if not {"height", "width"} <= required or required - known.keys() - {"height", "width"}:
        return None
    fixed = {name: known[name] for name in required & known.keys()}

    def accepts(ratio: int) -> bool:
        try:
            resize(height=_SHORT, width=_SHORT * ratio, **fixed)
        except ValueError:
            return False
        return True

    return accepts
