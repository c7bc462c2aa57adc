"""Object whose unpickling executes code."""

from __future__ import annotations

from pathlib import Path


class FileCreator:
    """Object that creates an empty file at the path `planted` when it is unpickled."""

    def __init__(self, planted: Path) -> None:
        self.planted = planted

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.planted), "w")
