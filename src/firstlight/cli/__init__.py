"""The command line: run, chat, inspect. Nothing here imports torch before a model is opened."""
