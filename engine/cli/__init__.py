"""Commands of the terminal. `main` runs ``footplate COMMAND …``."""

from engine.cli.main import main

__all__ = ["main"]
