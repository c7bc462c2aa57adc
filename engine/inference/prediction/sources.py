"""Collect the files for which predictions are made, and choose names for their results."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
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

_MAX_ESCAPED_LENGTH = 60

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
        """Hash of the file paths and names, used to detect that a resumed prediction has other files."""
        digest = hashlib.sha256()
        for files in (self.files, self.names):
            for content in files.identity(""):
                digest.update(content)
        return digest.hexdigest()


def list_sources(paths: Sequence[str], kind: Kind, out: str, files_of_task: SampleFiles | None = None) -> Sources:
    """List the sources in `paths`, including subfolders, but without hidden files and the folder `out`.

    Args:
        paths: Files, folders and cameras. For the kind "folder", a single folder, which is then the only source.
        kind: Kind of input that the model expects.
        out: Output folder of the prediction.
        files_of_task: Properties of the task's sample files, or None for images and videos.

    Raises:
        CannotLoad: There are no sources, or paths can't be read. It has all problems.
    """
    if kind == "folder":
        if len(paths) != 1 or not os.path.isdir(paths[0]):
            raise CannotLoad(
                _create_problem("The run's own task takes a folder.", "Choose one folder, as for its training.")
            )
        folder = os.path.abspath(paths[0])
        return Sources(kind, _pack_names([folder]), _pack_names([os.path.basename(folder)]))
    if files_of_task is None:
        named_files = find_files(paths, lambda name: is_image(name) or is_video(name), "image", out)
    else:
        named_files = find_files(paths, files_of_task.can_read, files_of_task.noun, out)
    names = _make_unique(name for _, name in named_files)
    return Sources(kind, _pack_names([file for file, _ in named_files]), _pack_names(names))


def find_files(paths: Sequence[str], is_accepted: Callable[[str], bool], noun: str, out: str) -> list[tuple[str, str]]:
    """Return the accepted files in `paths` and their subfolders.

    Each file is returned as its absolute path and its name, which is its path relative to the item of `paths` that
    contains it. A file or camera that is itself an item of `paths` is always accepted. Hidden files and the folder
    `out` are left out. `noun` names the expected files in messages. Raises CannotLoad with all problems.
    """
    problems: list[Problem] = []
    files: list[tuple[str, str]] = []
    for path in paths:
        try:
            accepted = list(_iterate_files(path, is_accepted, os.path.abspath(out)))
        except OSError as error:
            message = f"{printable(str(error.filename))} can't be read: {error.strerror}."
            problems.append(_create_problem(message, "Check its permissions, or choose another folder."))
            continue
        if not accepted and os.path.exists(path):
            problems.append(_create_problem(f"The folder {printable(path)} holds no {noun}.", "Choose another folder."))
        elif not accepted:
            problems.append(_create_problem(f"There is no file or folder {printable(path)}.", "Check the path."))
        files += accepted
    if problems:
        raise CannotLoad(*problems)
    if not files:
        raise CannotLoad(_create_problem("No files are chosen.", "Choose files or folders."))
    return files


def _iterate_files(path: str, is_accepted: Callable[[str], bool], out: str) -> Iterator[tuple[str, str]]:
    """Yield the accepted files in the folder `path`, or the file or camera `path` itself.

    Each is given by its absolute path (or the camera's name) and a name relative to `path`. The folder `out`, an
    absolute path, is left out. Raises OSError for an unreadable folder.
    """
    if path.startswith(CAMERA):
        yield path, path.replace(":", "-")
        return
    absolute = os.path.abspath(path)
    if not os.path.isdir(absolute):
        if os.path.exists(absolute):
            yield absolute, os.path.basename(absolute)
        return
    for folder, file_names in walk_files(absolute):
        if os.path.join(folder, "").startswith(os.path.join(out, "")):
            continue  # it is the output folder, or inside of it
        for name in file_names:
            file = os.path.join(folder, name)
            if is_accepted(file):
                yield file, os.path.relpath(file, absolute)


def _make_unique(names: Iterable[str]) -> list[str]:
    """Remove the extensions of file names, and make the names unique even if case is ignored.

    If a name is already taken, its extension is appended. If that name is taken, too, a number is also appended.
    """
    unique: list[str] = []
    casefolded: set[str] = set()
    for name in names:
        stem, extension = os.path.splitext(name)
        if printable(stem) != stem:  # a byte that is not UTF-8 becomes four characters, and a name has at most 255
            stem = "/".join(component[:_MAX_ESCAPED_LENGTH] for component in printable(stem).split("/"))
        candidate, number = stem, 1
        while candidate.casefold() in casefolded:
            candidate = f"{stem}-{extension[1:]}" if number == 1 else f"{stem}-{extension[1:]}-{number}"
            number += 1
        casefolded.add(candidate.casefold())
        unique.append(candidate)
    return unique


def _pack_names(names: Sequence[str]) -> Files:
    """Convert paths or names to `Files`, which take little memory even for millions of them."""
    return Files.of([Listing.of("", names)])


def _create_problem(message: str, remedy: str) -> Problem:
    return Problem("paths", message, remedy)
