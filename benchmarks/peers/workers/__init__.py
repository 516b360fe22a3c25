"""One module per engine, run as a process in that engine's own environment.

Nothing here imports firstlight or another part of the benchmarks: the environments have neither.
"""
