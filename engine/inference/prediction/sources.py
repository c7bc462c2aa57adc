"""Collect the files for which predictions are made, and choose names for their results."""

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

_LONGEST_ESCAPED = 60

Kind = Literal["images", "clouds", "folder"]
"""Kind of the samples: images and videos, point clouds, or a folder that a user-defined task reads."""


class Sources(NamedTuple):
    """Images, videos and cameras, point clouds, or a folder, with unique names for their results.

    `names` have no extension and are relative to the folder of a result format. They are unique even if case is
    ignored.
    """

    kind: Kind
    files: Files
    names: Files

    @property
    def identity(self) -> str:
        """Hash of the file paths and names, used to detect that the selection has changed."""
        digest = hashlib.sha256()
        for files in (self.files, self.names):
            for content in files.identity(""):
                digest.update(content)
        return digest.hexdigest()


def list_sources(paths: Sequence[str], kind: Kind, out: str, files_of_task: SampleFiles | None = None) -> Sources:
    """List the sources in `paths`, including subfolders, but without hidden files and the folder `out`.

    `files_of_task` accepts the files of a task that does not use images. It is None for images and videos. Raises
    CannotLoad with all problems.
    """
    problems: list[Problem] = []
    files: list[str] = []
    names = _Names()
    if kind == "folder":
        if len(paths) != 1 or not os.path.isdir(paths[0]):
            raise CannotLoad(_problem("The run's own task takes a folder.", "Choose one folder, as for its training."))
        return Sources(kind, _pack([os.path.abspath(paths[0])]), _pack([os.path.basename(os.path.abspath(paths[0]))]))
    is_accepted: Callable[[str], bool] = _is_image_or_video if files_of_task is None else files_of_task.accepts
    for path in paths:
        found = list(_below(path, is_accepted, os.path.abspath(out)))
        if not found:
            problems.append(_empty_problem(path, "image" if files_of_task is None else files_of_task.noun))
        for file, name in found:
            files.append(file)
            names.add(name)
    if problems:
        raise CannotLoad(*problems)
    if not files:
        raise CannotLoad(_problem("There is nothing to predict for.", "Choose files or folders."))
    return Sources(kind, _pack(files), _pack(names.taken))


def _is_image_or_video(name: str) -> bool:
    return is_image(name) or is_video(name)


def _below(path: str, is_accepted: Callable[[str], bool], out: str) -> Iterator[tuple[str, str]]:
    """Yield the files in a folder with their relative names, or `path` itself if it is a file or a camera.

    A file that is given directly may have any extension.
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
            if is_accepted(path):
                yield path, os.path.relpath(path, full)


class _Names:
    """Collector that makes file names unique and removes their extensions."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self._known: set[str] = set()

    def add(self, name: str) -> None:
        """Add a name without its extension.

        If the bare name is already taken, the extension is appended, and if necessary a number.
        """
        bare, ending = os.path.splitext(name)
        if printable(bare) != bare:  # a byte that is not UTF-8 becomes four characters, and a name has at most 255
            bare = "/".join(part[:_LONGEST_ESCAPED] for part in printable(bare).split("/"))
        candidate, number = bare, 1
        while candidate.casefold() in self._known:
            candidate = f"{bare}-{ending[1:]}" if number == 1 else f"{bare}-{ending[1:]}-{number}"
            number += 1
        self._known.add(candidate.casefold())
        self.taken.append(candidate)


def _pack(names: Sequence[str]) -> Files:
    return Files.of([Listing.of("", names)])


def _problem(message: str, remedy: str) -> Problem:
    return Problem("paths", message, remedy)


def _empty_problem(path: str, noun: str) -> Problem:
    if not os.path.exists(path):
        return _problem(f"There is no file or folder {printable(path)}.", "Check the path.")
    if not os.access(path, os.R_OK | os.X_OK):
        return _problem(f"The folder {printable(path)} can't be read.", "Check its permissions.")
    return _problem(f"The folder {printable(path)} holds no {noun}.", "Choose another folder.")
