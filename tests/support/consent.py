"""Consent of the user to run model files that tests write."""

from __future__ import annotations

from pathlib import Path

from engine.checks.disk import model_file_sha256
from engine.runs.consent import agree


def agreed(path: Path) -> str:
    """Allow the file at `path` to run in the test's home, and return its SHA-256."""
    sha256 = model_file_sha256(str(path))
    assert sha256 is not None
    agree(str(path), sha256)
    return sha256
