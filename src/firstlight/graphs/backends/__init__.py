"""How a body is captured and replayed."""
