"""An OpenAI-compatible server around one engine."""
