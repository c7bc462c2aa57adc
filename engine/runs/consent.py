"""User's consent to running model files, recorded by path and content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from engine.system import paths
from engine.system.files import read_file


def record_consent(path: str, sha256: str) -> None:
    """Record that the user allows the file at `path` to run while its content has the hash `sha256`. Raises OSError."""
    record, line = _consent_record(path, sha256)
    paths.make_home()
    paths.make_private_folder(record.parent)
    paths.write_atomically(record, line)


def has_consent(path: str, sha256: str) -> bool:
    """Return True if the user has allowed the file with this content to run.

    Records that another user may have written are ignored.
    """
    record, line = _consent_record(path, sha256)
    try:
        return paths.is_only_writable_by_user(record) and read_file(record) == line
    except OSError:
        return False


def _consent_record(path: str, sha256: str) -> tuple[Path, bytes]:
    """Return the path and the content of the file that records consent to run a model file.

    The content has the format of `sha256sum`.
    """
    line = b"%s  %s\n" % (sha256.encode(), os.fsencode(os.path.realpath(os.path.expanduser(path))))
    return paths.home() / "consent" / hashlib.sha256(line).hexdigest(), line
