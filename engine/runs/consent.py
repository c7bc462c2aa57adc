"""User's consent to running model files, recorded by path and content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from engine.system import paths
from engine.system.files import read_file


def agree(path: str, sha256: str) -> None:
    """Record that the user allows the file at `path` to run while its content has the hash `sha256`. Raises OSError."""
    note, line = _note(path, sha256)
    paths.make_home()
    paths.private_folder(note.parent)
    paths.write_atomically(note, line)


def is_agreed(path: str, sha256: str) -> bool:
    """Return True if the user has allowed the file with this content to run.

    Records that another user may have written are ignored.
    """
    note, line = _note(path, sha256)
    try:
        return paths.is_only_writable_by_user(note) and read_file(note) == line
    except OSError:
        return False


def _note(path: str, sha256: str) -> tuple[Path, bytes]:
    """Return the path and the content of the record for a file, in the format of `sha256sum`."""
    line = b"%s  %s\n" % (sha256.encode(), os.fsencode(os.path.realpath(os.path.expanduser(path))))
    return paths.home() / "consent" / hashlib.sha256(line).hexdigest(), line
