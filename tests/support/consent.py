"""Permission for Footplate to execute a model file."""

from __future__ import annotations

from pathlib import Path

from engine.checks.disk import model_file_sha256
from engine.runs.consent import record_consent


def permit_model_file(path: Path) -> str:
    """Permit Footplate to execute the model file at `path` and return the file's SHA-256."""
    sha256 = model_file_sha256(str(path))
    assert sha256 is not None
    record_consent(str(path), sha256)
    return sha256
