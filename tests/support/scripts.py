"""Shell scripts that tests run instead of real programs."""

from __future__ import annotations

from pathlib import Path


def write_script(path: Path, script: str) -> None:
    """Write an executable shell script with the commands `script`."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
