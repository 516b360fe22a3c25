"""firstlight beside other engines: same weights, same threads, in turns on one machine."""
