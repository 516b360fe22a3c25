"""Measurements behind every figure in the README and the docs; run by ``scripts/bench``."""
