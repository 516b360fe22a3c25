"""Triton kernels against the functions that a CPU runs."""
