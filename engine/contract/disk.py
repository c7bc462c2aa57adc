"""What checks ask of the disk, so that whoever must not wait for it can answer from what is known."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from engine.contract.catalogue import Measure
from engine.contract.own_measures import measures_in

Kind = Literal["", "file", "folder", "other"]
"""What lies at a path: "" where there is nothing, or nothing that may be looked at."""


@dataclass(frozen=True)
class ModelFile:
    """A Python file as it is now. `sha256` is what consent to run it is bound to, None where it cannot be read; `measures`
    are those that its text names."""

    sha256: str | None
    measures: tuple[Measure, ...] = ()


class Disk(Protocol):
    """None is the answer to what is not known yet, of which checks then say nothing."""

    def kind(self, path: str) -> Kind | None:
        """What lies at `path`."""

    def model_file(self, path: str) -> ModelFile | None:
        """The Python file at `path`."""


class RealDisk:
    """Answers from the disk itself, however long that takes."""

    def kind(self, path: str) -> Kind:
        try:
            mode = os.stat(os.path.expanduser(path)).st_mode
        except (OSError, ValueError):  # what is typed may hold characters that no path has
            return ""
        return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"

    def model_file(self, path: str) -> ModelFile:
        try:
            content = Path(os.path.expanduser(path)).read_bytes()
        except (OSError, ValueError):
            return ModelFile(None)
        return ModelFile(hashlib.sha256(content).hexdigest(), measures_in(content))


def model_file_sha256(path: str) -> str | None:
    """The hash that consent to run a model file is bound to, or None where the file cannot be read."""
    return RealDisk().model_file(path).sha256
