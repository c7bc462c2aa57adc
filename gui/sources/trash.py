"""Undoable deletion of runs and evaluations, in the desktop's trash or in Footplate's."""

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
    """Failed move; the text is a message for the user."""


@dataclass(frozen=True)
class Trashed:
    """Folder moved from `origin` to a `location` in a trash, which the user empties if it is the `desktop`'s."""

    origin: Path
    location: Path
    desktop: bool


def trash_run(run: RunFolder) -> Trashed:
    """Move a run's folder to a trash on its own disk. Raises CannotTrash for an active run or a refused move."""
    supervisor = run.supervisor()
    if run.state() not in ENDED or (supervisor is not None and supervisor.alive()):
        raise CannotTrash(tr("{run_id} is still running: stop it first.").format(run_id=run.run_id))
    return trash_folder(run.path)


def trash_folder(folder: Path) -> Trashed:
    """Move a folder to a trash on its own disk. Raises CannotTrash if it is gone or the system refuses."""
    path = folder.absolute()
    if not path.is_dir():
        raise CannotTrash(tr("{name} no longer exists.").format(name=path.name))
    thrown = QFile(str(path))
    if thrown.moveToTrash():  # which on Linux refuses a trash that another user has prepared
        return Trashed(path, Path(thrown.fileName()), desktop=True)
    try:
        location = paths.private_folder(paths.home() / "trash") / f"{path.name}.{time.time_ns()}"
        os.rename(path, location)
    except OSError as error:
        raise CannotTrash(
            tr("{name} could not be moved: {strerror} ({path}).").format(
                name=path.name, strerror=error.strerror, path=path
            )
        ) from error
    return Trashed(path, location, desktop=False)


def put_back(thing: Trashed) -> None:
    """Move a folder from the trash back. Raises CannotTrash if it is gone from the trash or its path is taken."""
    if not thing.location.is_dir():
        raise CannotTrash(tr("{name} is no longer in the trash.").format(name=thing.origin.name))
    if thing.origin.exists():
        raise CannotTrash(tr("{origin} exists again, so the one in the trash stays there.").format(origin=thing.origin))
    try:
        thing.origin.parent.mkdir(parents=True, exist_ok=True)
        os.rename(thing.location, thing.origin)
    except OSError as error:
        raise CannotTrash(
            tr("{name} could not be restored from the trash: {strerror} ({origin}).").format(
                name=thing.origin.name, strerror=error.strerror, origin=thing.origin
            )
        ) from error
    if thing.desktop:  # the Trash specification of freedesktop.org stores the original path in a file of its own
        (thing.location.parents[1] / "info" / f"{thing.location.name}.trashinfo").unlink(missing_ok=True)
