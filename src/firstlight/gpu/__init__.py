"""Triton kernels for what takes several operations of torch; import needs the ``triton`` package.

Attention over pages serves where no library's kernel does, once it has passed a trial on the
machine's GPU (:mod:`firstlight.attention.trial`); keys and values it stores by a kernel of their
own. No step calls the others yet: torch's operations do the same, and they are taken in when a
measurement on a GPU shows what they save. Results are those of the functions that a CPU runs, which
the tests compare them with, in Triton's interpreter or on a GPU.
"""
