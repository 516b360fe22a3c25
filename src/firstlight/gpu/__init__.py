"""Triton kernels for what takes several operations of torch; import needs the ``triton`` package.

No step calls them yet: torch's operations do the same, and a kernel of our own takes their place
when a measurement on a GPU shows what it saves. Their results are those of the functions that a CPU
runs, which the tests compare them with, in Triton's interpreter or on a GPU.
"""
