"""The terminal's commands. `main` is what ``footplate COMMAND …`` runs; nothing slow is imported before it is
needed.
"""

from engine.cli.main import main

__all__ = ["main"]
