"""The loop: prompts, scheduling, steps, and the Python API over them."""
