"""One check of everything that needs a GPU: see ``scripts/gpu-check``."""
