"""One module a command of `amd-mono`; each exports the function that `cli.py` registers."""
