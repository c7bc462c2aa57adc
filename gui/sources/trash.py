"""Deletion of runs and evaluations that can be undone: they are moved to the desktop's trash or Footplate's."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QFile

from engine.runs.folder import ENDED, RunFolder
from engine.system import paths
from gui.translation import tr


class CannotTrash(Exception):  # noqa: N818  (a state of things more than an error)
    """Raised when a folder can't be moved to the trash or back. The message is written for the user."""


@dataclass(frozen=True)
class Trashed:
    """Folder that was moved from `origin` to `location` in a trash. `desktop` is True for the desktop's trash."""

    origin: Path
    location: Path
    desktop: bool


def trash_run(run: RunFolder) -> Trashed:
    """Move a run's folder to a trash on the same disk, and return where it is.

    Raises CannotTrash if the run is active or the move fails.
    """
    if run.state() not in ENDED or run.is_supervised():  # a supervisor still writes after its last event
        raise CannotTrash(tr("{run_id} is still running: stop it first.").format(run_id=run.run_id))
    return trash_folder(run.path)


def trash_folder(folder: Path) -> Trashed:
    """Move a folder to a trash on the same disk. Raises CannotTrash if the folder is missing or the move fails."""
    path = folder.absolute()
    if not path.is_dir():
        raise CannotTrash(tr("{name} no longer exists.").format(name=path.name))
    thrown = QFile(str(path))
    if thrown.moveToTrash():  # on Linux, this refuses a trash that another user has prepared
        return Trashed(path, Path(thrown.fileName()), desktop=True)
    try:
        location = paths.make_private_folder(paths.home() / "trash") / f"{path.name}.{time.time_ns()}"
        os.rename(path, location)
    except OSError as error:
        raise CannotTrash(
            tr("{name} could not be moved: {strerror} ({path}).").format(
                name=path.name, strerror=error.strerror, path=path
            )
        ) from error
    return Trashed(path, location, desktop=False)


def put_back(trashed: Trashed) -> None:
    """Move a folder back from the trash. Raises CannotTrash if it is gone or its old path is in use."""
    if not trashed.location.is_dir():
        raise CannotTrash(tr("{name} is no longer in the trash.").format(name=trashed.origin.name))
    if trashed.origin.exists():
        raise CannotTrash(
            tr("{origin} exists again, so the one in the trash stays there.").format(origin=trashed.origin)
        )
    try:
        trashed.origin.parent.mkdir(parents=True, exist_ok=True)
        os.rename(trashed.location, trashed.origin)
    except OSError as error:
        raise CannotTrash(
            tr("{name} could not be restored from the trash: {strerror} ({origin}).").format(
                name=trashed.origin.name, strerror=error.strerror, origin=trashed.origin
            )
        ) from error
    if trashed.desktop:  # the Trash specification of freedesktop.org stores the original path in a separate file
        (trashed.location.parents[1] / "info" / f"{trashed.location.name}.trashinfo").unlink(missing_ok=True)
