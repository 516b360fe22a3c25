"""What rows of media must be, compared before anything is kept or written."""

from __future__ import annotations

import torch
from torch import Tensor

from firstlight.contract import InputContract
from firstlight.errors import MediaError, ProbeError


def check_rows(
    rows: Tensor,
    places: int,
    contract: InputContract,
    dtype: torch.dtype,
    what: str = "picture",
) -> None:
    """Compare the encoder's rows of one item with its places, the contract and the slot.

    Args:
        rows: what the encoder made of the item.
        places: positions of the prompt that the item fills.
        dtype: of the ``input_embeds`` slot.
        what: the item in a word, for errors.

    Raises:
        MediaError: rows that are not 2-D, of another number, width or dtype; both values are named.
    """
    if rows.ndim != 2:
        raise MediaError(f"the {what} was encoded into shape {tuple(rows.shape)}; rows are 2-D")
    if rows.shape[0] != places:
        raise MediaError(
            f"the {what} was encoded into {rows.shape[0]} rows, "
            f"but the prompt holds {places} places for it"
        )
    try:
        contract.check_written(rows.shape[1], writer="the encoder", rows="media rows")
    except ProbeError as error:
        raise MediaError(str(error)) from error
    if rows.dtype != dtype:
        raise MediaError(
            f"the {what} was encoded into rows of {rows.dtype}, but the input_embeds slot holds "
            f"{dtype}; cast them in the adapter's encode"
        )
