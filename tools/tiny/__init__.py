"""Tiny random checkpoints of every family; see ``tools.tiny_checkpoints``."""
