"""What a user marks of a dataset: written as a table, or made into a copy of the dataset, which can be undone there."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from engine.contract.inference.messages import Progress
from engine.contract.inference.review import CHANGES_FILE, Change, Changes, Mark, Marked, MarkOrder, decode_changes
from engine.contract.problems import Problem
from engine.data.formats import imagefolder
from engine.data.formats.registry import recognize
from engine.data.splits import printable
from engine.inference.devices import Say
from engine.inference.trained_model import CannotLoad
from engine.runs.folder import RunFolder
from engine.system import paths
from engine.system.csv_writer import CsvWriter
from engine.system.decode_errors import NOT_DECODED

COLUMNS = ("file", "reason", "label", "prediction", "new_label")
MARKED_FILE = "marked.json"


def mark(order: MarkOrder, say: Say) -> Path:
    """Does what the order says; the path of a `Marked`, in a temporary folder. Raises CannotLoad."""
    try:
        done = _done(order, say)
        file = Path(tempfile.mkdtemp(prefix="footplate-")) / MARKED_FILE
        paths.write_atomically(file, msgspec.json.encode(done))
    except OSError as error:
        where = f" ({printable(os.fsdecode(error.filename))})" if error.filename else ""
        message = f"The copy or the table can't be written: {error.strerror or error}{where}."
        raise CannotLoad(Problem("copy", message, "Free some space there, or choose another folder.")) from error
    return file


def _done(order: MarkOrder, say: Say) -> Marked:
    if order.undo:
        return Marked(copy=order.undo, restored=undo(Path(order.undo)))
    job = RunFolder(order.run).job()
    if job is None:
        raise CannotLoad(Problem("run", "The run's job can't be read.", "Choose another run."))
    done = Marked()
    if order.csv:
        paths.write_atomically(Path(order.csv), table(order.marks).encode())
        done = msgspec.structs.replace(done, csv=order.csv)
    if order.copy:
        copied = _Copy(
            Path(os.path.expanduser(job.data.dataset)).absolute(), Path(order.copy).absolute(), order.marks, say
        )
        done = msgspec.structs.replace(copied.make(), csv=done.csv)
    return done


def table(marks: tuple[Mark, ...]) -> str:
    """The marks as CSV, with a head."""
    stream = io.StringIO()
    writer = CsvWriter(stream)
    writer.row(COLUMNS)
    for each in marks:
        writer.row(getattr(each, name) for name in COLUMNS)
    return stream.getvalue()


class _Copy:
    """A copy of a dataset of folders of classes, made of hard links where the file system can."""

    def __init__(self, dataset: Path, target: Path, marks: tuple[Mark, ...], say: Say) -> None:
        self._dataset = dataset
        self._target = target
        self._marks = {os.path.realpath(each.file): each for each in marks}
        self._say = say
        self._classes = self._checked()
        self._changes: list[Change] = []
        self._linked = self._files = 0

    def make(self) -> Marked:
        """Makes it, as a whole or not at all. Raises OSError."""
        part = Path(tempfile.mkdtemp(prefix=f".{self._target.name}.", dir=self._target.parent))
        try:
            for source in _files(self._dataset):
                self._put(source, part)
            changes = Changes(dataset=str(self._dataset), changes=tuple(self._changes))
            paths.write_atomically(part / CHANGES_FILE, msgspec.json.encode(changes))
            part.rename(self._target)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        moved = sum(bool(change.moved_to) for change in self._changes)
        return Marked(
            copy=str(self._target),
            files=self._files,
            linked=self._linked,
            removed=len(self._changes) - moved,
            relabelled=moved,
        )

    def _put(self, source: Path, part: Path) -> None:
        inside = source.relative_to(self._dataset)
        marked = self._marks.get(os.path.realpath(source))
        place: Path | None = inside
        if marked is not None:
            place = self._relabelled(inside, marked.new_label) if marked.new_label else None
            moved_to = str(place) if place is not None else ""
            self._changes.append(
                Change(original=str(source), path=str(inside), moved_to=moved_to, reason=marked.reason)
            )
        if place is not None:
            self._linked += link(source, part / place)
            self._files += 1
            if self._files % 1000 == 0:
                self._say(Progress(fraction=0.0, what=f"Copying the dataset: {self._files:,} files"))

    def _relabelled(self, inside: Path, label: str) -> Path:
        """Where an image lies with another label: in the folder of that class, under a name that is free there."""
        depth = _depth_of_class(inside, self._classes)
        moved = Path(*inside.parts[:depth], self._classes[label], *inside.parts[depth + 1 :])
        number = 1
        while (self._dataset / moved).exists() or any(change.moved_to == str(moved) for change in self._changes):
            moved = moved.with_name(f"{inside.stem}-{number}{inside.suffix}")
            number += 1
        return moved

    def _checked(self) -> Mapping[str, str]:
        """The folders of the classes by name. Raises CannotLoad with everything that is wrong."""
        found = recognize(str(self._dataset), val_fraction=0.2, seed=0)
        problems = []
        if found.format != imagefolder.FORMAT.id:
            message = "Only a dataset of one folder of images per class can be copied without marked samples."
            raise CannotLoad(Problem("copy", message, "Write a table with --csv, and change the dataset by it."))
        if self._target.exists() or not self._target.parent.is_dir():
            why = "already exists" if self._target.exists() else "lies in a folder that does not exist"
            problems.append(Problem("copy", f"{self._target} {why}.", "Choose another name."))
        if self._target.is_relative_to(self._dataset):
            problems.append(Problem("copy", "The copy would lie in the dataset.", "Choose a folder outside of it."))
        inside = os.path.join(os.path.realpath(self._dataset), "")
        for file, each in self._marks.items():
            if not file.startswith(inside) or not os.path.isfile(file):
                message = f"{each.file} is not a file of the dataset."
                problems.append(Problem("marks", message, "Review the dataset again."))
            if each.new_label and each.new_label not in found.classes:
                problems.append(Problem("marks", f"The dataset has no class “{each.new_label}”.", "Correct the label."))
        if problems:
            raise CannotLoad(*problems)
        names = {printable(name): name for _, folders, _ in os.walk(self._dataset) for name in folders}
        return {name: names[name] for name in found.classes}


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names) if name != CHANGES_FILE)


def _depth_of_class(inside: Path, classes: Mapping[str, str]) -> int:
    """Which part of the path is the folder of the class: the first, or behind that of a split the second."""
    named = [depth for depth, part in enumerate(inside.parts[:-1]) if printable(part) in classes]
    return named[0]


def link(source: Path, target: Path) -> bool:
    """Makes `target` the same file, or where the file system can't, a copy; whether it is the same. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copyfile(source, target)
        return False
    return True


def undo(copy: Path) -> int:
    """Puts all that a copy differs in back to where the dataset has it; how many samples that were. Raises
    CannotLoad, OSError.
    """
    file = copy / CHANGES_FILE
    try:
        known = decode_changes(file.read_bytes())
    except (OSError, *NOT_DECODED) as error:
        message = f"{copy} is not a copy of a dataset with changes that can be undone."
        raise CannotLoad(Problem("undo", message, "Choose a folder that was written by --copy-without.")) from error
    inside = [Path(path) for change in known.changes for path in (change.path, change.moved_to) if path]
    if any(path.is_absolute() or ".." in path.parts for path in inside):
        raise CannotLoad(Problem("undo", f"{file} names files outside of the copy.", "Make the copy again."))
    for change in known.changes:
        moved = copy / change.moved_to if change.moved_to else None
        source = moved if moved is not None and moved.is_file() else Path(change.original)
        if not (copy / change.path).exists():
            link(source, copy / change.path)
        if moved is not None:
            with suppress(FileNotFoundError):
                moved.unlink()
    file.unlink()
    return len(known.changes)
