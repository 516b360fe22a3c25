"""Other people's clients, unmodified, against a real server: ``scripts/test --clients``."""
