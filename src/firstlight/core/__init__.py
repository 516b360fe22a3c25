"""Requests, plans, reasons and timings: the values that cross module borders. Pure Python."""
