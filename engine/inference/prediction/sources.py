"""What a model is to predict for, and what the results of each are called."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from engine.contract.inference.prediction import CAMERA
from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.files import Files, Listing
from engine.data.formats.tree import walk_files
from engine.data.splits import printable
from engine.inference.trained_model import CannotLoad
from engine.inference.video import is_video
from engine.tasks.base import SampleFiles

Kind = Literal["images", "clouds", "folder"]
"""What a task's samples are: images and videos, point clouds, or what a file of the user's makes of one folder."""


class Sources(NamedTuple):
    """Files, cameras, and in `kind` "folder" the one folder; and `names`, by which the files of the results of each
    are called, without an ending and relative to the folder of their format. No two are alike, whatever the case of
    their letters.
    """

    kind: Kind
    files: Files
    names: Files

    @property
    def identity(self) -> str:
        """What tells these from others, in a few letters."""
        digest = hashlib.sha256()
        for files in (self.files, self.names):
            for part in files.identity(""):
                digest.update(part)
        return digest.hexdigest()


def list_sources(paths: Sequence[str], kind: Kind, out: str, files_of_task: SampleFiles | None = None) -> Sources:
    """Return what `paths` hold for a task of that kind: folders from top to bottom, without hidden files and `out`.

    `files_of_task` are the files of a task whose samples are not images. Raises CannotLoad with all problems.
    """
    problems: list[Problem] = []
    files: list[str] = []
    names = _Names()
    if kind == "folder":
        if len(paths) != 1 or not os.path.isdir(paths[0]):
            raise CannotLoad(_wrong("The run's own task takes a folder.", "Choose one folder, as for its training."))
        return Sources(
            kind, _packed([os.path.abspath(paths[0])]), _packed([os.path.basename(os.path.abspath(paths[0]))])
        )
    wanted: Callable[[str], bool] = _is_image_or_video if files_of_task is None else files_of_task.accepts
    for path in paths:
        found = list(_below(path, wanted, os.path.abspath(out)))
        if not found:
            problems.append(_nothing(path, "image" if files_of_task is None else files_of_task.noun))
        for file, name in found:
            files.append(file)
            names.add(name)
    if problems:
        raise CannotLoad(*problems)
    if not files:
        raise CannotLoad(_wrong("There is nothing to predict for.", "Choose files or folders."))
    return Sources(kind, _packed(files), _packed(names.taken))


def _is_image_or_video(name: str) -> bool:
    return is_image(name) or is_video(name)


def _below(path: str, wanted: Callable[[str], bool], out: str) -> Iterator[tuple[str, str]]:
    """The files that a path leads to, and what each is called relative to it. A file that is named itself is taken
    whatever its ending is.
    """
    if path.startswith(CAMERA):
        yield path, path.replace(":", "-")
        return
    full = os.path.abspath(path)
    if not os.path.isdir(full):
        if os.path.exists(full):
            yield full, os.path.basename(full)
        return
    for folder, found in walk_files(full):
        if os.path.join(folder, "").startswith(os.path.join(out, "")):
            continue
        for name in found:
            path = os.path.join(folder, name)
            if wanted(path):
                yield path, os.path.relpath(path, full)


class _Names:
    """Names without endings, each given once."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self._known: set[str] = set()

    def add(self, name: str) -> None:
        """Adds a name like this one: without its ending where that is new, else with it, else with a number."""
        bare, ending = os.path.splitext(name)
        candidate, number = bare, 1
        while candidate.casefold() in self._known:
            candidate = f"{bare}-{ending[1:]}" if number == 1 else f"{bare}-{ending[1:]}-{number}"
            number += 1
        self._known.add(candidate.casefold())
        self.taken.append(candidate)


def _packed(names: Sequence[str]) -> Files:
    return Files.of([Listing.of("", names)])


def _wrong(message: str, remedy: str) -> Problem:
    return Problem("paths", message, remedy)


def _nothing(path: str, noun: str) -> Problem:
    if not os.path.exists(path):
        return _wrong(f"There is no file or folder {printable(path)}.", "Check the path.")
    if not os.access(path, os.R_OK | os.X_OK):
        return _wrong(f"The folder {printable(path)} can't be read.", "Check its permissions.")
    return _wrong(f"The folder {printable(path)} holds no {noun}.", "Choose another folder.")
