"""Every address of a graph belongs to somebody."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firstlight.graphs import Ownership


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("table", torch.zeros(3))
        self.loose = torch.zeros(4)
        self.several = [torch.zeros(5), torch.zeros(6)]
        self.named = {"a": torch.zeros(7)}


def test_all_tensors_of_a_module_are_owned_under_their_names() -> None:
    module, owned = Holder(), Ownership()
    owned.add_module(module)
    assert owned.owner_of(module.inner.weight) == "weight inner.weight"
    assert owned.owner_of(module.table) == "weight table"  # type: ignore[arg-type]
    assert owned.owner_of(module.loose) == "weight loose"
    assert owned.owner_of(module.several[1]) == "weight several.1"
    assert owned.owner_of(module.named["a"]) == "weight named.a"


def test_a_view_belongs_to_the_owner_of_its_memory() -> None:
    owned, x = Ownership(), torch.zeros(4, 4)
    owned.add(x, "slot x")
    assert owned.owner_of(x[2:].t()) == "slot x"
    assert owned.owner_of(x.clone()) is None


def test_an_address_has_the_owner_of_its_memory() -> None:
    owned, x = Ownership(), torch.zeros(4)
    owned.add(x, "slot x")
    assert owned.owner_at(x.data_ptr() + 15) == "slot x"
    assert owned.owner_at(x.data_ptr() + x.untyped_storage().nbytes()) is None


def test_the_first_declaration_of_a_memory_wins() -> None:
    owned, x = Ownership(), torch.zeros(4)
    owned.add(x, "pool", frozen=False)
    owned.add(x[1:], "weight", frozen=True)
    found = owned.find(x)
    assert found is not None
    assert (found.owner, found.frozen) == ("pool", False)


def test_owned_memory_outlives_its_tensor() -> None:
    owned = Ownership()
    x = torch.full((1000,), 3.0)
    address = x.data_ptr()
    owned.add(x, "slot x")
    del x
    churn = [torch.zeros(1000) for _ in range(50)]
    assert all(t.data_ptr() != address for t in churn)
    assert owned.owner_at(address) == "slot x"


def test_a_tensor_that_a_module_got_later_is_found() -> None:
    module, owned = Holder(), Ownership()
    owned.add_module(module)
    late: Tensor = torch.zeros(9)
    assert owned.owner_of(late) is None
    module.late = late
    assert owned.owner_of(late) == "weight late"
