"""Load for an OpenAI-compatible server, and what it makes of it. No torch: any server will do."""

from __future__ import annotations

from firstlight.bench.report import report
from firstlight.bench.run import Measured, measure
from firstlight.bench.server_process import server_process
from firstlight.bench.settings import LoadSettings

__all__ = ["LoadSettings", "Measured", "measure", "report", "server_process"]
