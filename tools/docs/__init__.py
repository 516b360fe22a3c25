"""Keeps the documentation true: generated parts, and links that lead somewhere."""
