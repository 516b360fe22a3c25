"""Calls of tools: what a model writes, read as it comes, and forms that make it call."""
