"""The tables of known faults, from ``tests/faults`` and what its checks were recorded to say."""

from __future__ import annotations

from tools.docs.markdown import table


def caught() -> str:
    """Every fault, and what a user sees of it from the first check that catches it."""
    from tests.faults.fault import Level
    from tests.faults.recorded import recorded
    from tests.faults.table import FAULTS

    rows = []
    for fault in FAULTS:
        messages = recorded()[fault.id]
        levels = [level for level in Level if level in fault.caught_by]
        names = ", ".join(levels) + (" alone" if len(levels) == 1 and not fault.by_chance else "")
        names += "".join(f"; {level} by chance" for level in fault.by_chance)
        seen = messages[levels[0]].replace("`", "")
        rows.append((f"**{fault.id}**: {fault.what}", fault.seen_at, names, f"`{seen}`"))
    return table(("fault", "met in", "caught by", "what the user sees"), rows)


def uncaught() -> str:
    """Faults that no check of these finds."""
    from tests.faults.table import UNCAUGHT

    return table(("fault", "met in"), ((f"**{f.id}**: {f.what}", f.seen_at) for f in UNCAUGHT))


def impossible() -> str:
    """Faults that cannot occur, with the reason."""
    from tests.faults.constructions import CONSTRUCTIONS

    rows = ((c.what, c.seen_at, c.why, f"`{c.test}`") for c in CONSTRUCTIONS)
    return table(("fault", "met in", "why it cannot occur", "shown by"), rows)


def tally() -> str:
    """How many faults there are, and how many each check catches."""
    from tests.faults.fault import Level
    from tests.faults.table import FAULTS, UNCAUGHT

    rows = []
    for level in Level:
        mine = [fault for fault in FAULTS if level in fault.caught_by]
        alone = [fault for fault in mine if len(fault.caught_by) == 1]
        rows.append((level.value, str(len(mine)), str(len(alone))))
    head = f"{len(FAULTS)} faults are caught, {len(UNCAUGHT)} are not."
    return f"{head}\n\n" + table(("check", "faults it catches", "that it alone catches"), rows)
