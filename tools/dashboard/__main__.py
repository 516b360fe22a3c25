"""``python -m tools.dashboard``: rewrite ``deploy/grafana/firstlight.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.dashboard.panels import ROWS, Panel, Row

OUT = Path(__file__).parents[2] / "deploy" / "grafana" / "firstlight.json"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _ACROSS = 24, 8, 3


def dashboard() -> dict[str, Any]:
    """The whole file as a value."""
    return {
        "title": "firstlight",
        "uid": "firstlight",
        "description": "Latency, throughput, memory, graphs, caches and errors of firstlight.",
        "tags": ["firstlight", "inference"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": _variables()},
        "panels": _panels(),
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource"}
    return [
        source | {"query": "prometheus", "current": {}, "refresh": 1},
        _values_of("model_name", "Model", "firstlight_build_info"),
        _values_of("instance", "Server", 'firstlight_build_info{model_name=~"$model_name"}'),
    ]


def _values_of(label: str, title: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {label})"
    return {
        "name": label,
        "label": title,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "variable"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        at = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
        head = {"type": "row", "title": row.title, "collapsed": False, "panels": []}
        made.append(head | {"id": len(made) + 1, "gridPos": at})
        y = _fill(made, row, y + 1)
    return made


def _fill(made: list[dict[str, Any]], row: Row, y: int) -> int:
    """Append a row's panels from line ``y`` on; the line below them."""
    width = _WIDTH // _ACROSS
    for i, panel in enumerate(row.panels):
        at = {"x": i % _ACROSS * width, "y": y + i // _ACROSS * _HEIGHT, "w": width, "h": _HEIGHT}
        made.append(_drawn(panel) | {"id": len(made) + 1, "gridPos": at})
    return y + -(-len(row.panels) // _ACROSS) * _HEIGHT


def _drawn(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "auto"}
    if panel.stacked:
        custom |= {"fillOpacity": 40, "stacking": {"mode": "normal", "group": "A"}}
    limits = {"min": 0, "max": 1} if panel.share else {"min": 0}
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "custom": custom, **limits},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": True,
            }
            for i, query in enumerate(panel.queries)
        ],
    }


def main() -> None:
    """The command."""
    OUT.write_text(text())
    print(f"wrote {OUT.name}")


if __name__ == "__main__":
    main()
