"""Which metrics and labels a PromQL expression reads, by Prometheus's own grammar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import promql_parser as promql


@dataclass(frozen=True, slots=True)
class Read:
    """One selector of an expression.

    Attributes:
        labels: every label that it filters by.
        equal: those with one value, and the value.
    """

    metric: str
    labels: frozenset[str]
    equal: tuple[tuple[str, str], ...]


def parsed(expr: str) -> promql.Expr:
    """An expression; ValueError says where it is none. Grafana's own variables get a value."""
    return promql.parse(expr.replace("$__rate_interval", "5m"))


def reads(expr: promql.Expr) -> Iterator[Read]:
    """Its selectors."""
    for part in _parts(expr):
        selector = part.vector_selector if isinstance(part, promql.MatrixSelector) else part
        if isinstance(selector, promql.VectorSelector):
            matchers = selector.matchers.matchers
            equal = tuple((m.name, m.value) for m in matchers if m.op == promql.MatchOp.Equal)
            assert selector.name is not None, "a selector without a name"
            yield Read(selector.name, frozenset(m.name for m in matchers), equal)


def groupings(expr: promql.Expr) -> Iterator[tuple[frozenset[str], list[Read]]]:
    """The labels of each ``by``, with the selectors below it."""
    for part in _parts(expr):
        if isinstance(part, promql.AggregateExpr) and part.modifier is not None:
            yield frozenset(part.modifier.labels), list(reads(part.expr))


def _parts(expr: promql.Expr) -> Iterator[promql.Expr]:
    """An expression, and all that it is made of."""
    yield expr
    below: list[promql.Expr] = []
    for name in ("lhs", "rhs", "expr", "param"):
        inner = getattr(expr, name, None)
        if inner is not None:
            below.append(inner)
    below.extend(getattr(expr, "args", None) or ())
    for inner in below:
        yield from _parts(inner)
