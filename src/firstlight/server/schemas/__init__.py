"""What requests may hold: every field is honoured, or refused by its name."""
