"""Which programs of the user's, as model files, may run: by path and content, and kept outside runs, whose folders
may come from anybody.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from engine.system import paths


def agree(path: str, sha256: str) -> None:
    """Notes that the user allows the file at `path` to run with the contents of that `sha256`. Raises OSError."""
    note, line = _note(path, sha256)
    paths.make_home()
    paths.private_folder(note.parent)
    paths.write_atomically(note, line)


def is_agreed(path: str, sha256: str) -> bool:
    """Whether the user has. A note that somebody else may have left says nothing."""
    note, line = _note(path, sha256)
    try:
        return paths.is_only_writable_by_user(note) and note.read_bytes() == line
    except OSError:
        return False


def _note(path: str, sha256: str) -> tuple[Path, bytes]:
    """The file that says so, and its text, which is as `sha256sum` writes it."""
    line = b"%s  %s\n" % (sha256.encode(), os.fsencode(os.path.realpath(os.path.expanduser(path))))
    return paths.home() / "consent" / hashlib.sha256(line).hexdigest(), line
