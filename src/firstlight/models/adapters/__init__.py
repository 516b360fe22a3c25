"""One adapter per family of models."""
