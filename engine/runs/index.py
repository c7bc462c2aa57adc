"""The list of all runs, read once: what has been read of a run is kept while its files stay as they were.

The index is a file in Footplate's home, and a convenience alone: what it holds of a run bears the stamps of what it
was read from, and is read anew where one of them differs. The log grows, and has a stamp of its own; all other files
of a run that a summary is read from are replaced as a whole (supervisor.json, notes.json, job.toml), which the
folder's own time of change tells: two looks at a run instead of four. A damaged index, one of another version and one
of another place count as none.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from engine.runs.folder import ENDED, RunFolder, RunSummary, list_runs, run_names
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED

_FORM = 1
"""To be raised where a summary's fields come to mean something else."""

_TICK_NS = 2_000_000_000
"""The coarsest step of a file system's clock (FAT's). What has changed within it may change again without a trace, so
that it is not kept."""

_Stamp = tuple[int, int, int]
"""When the folder changed and when the log did (ns since the epoch), and the log's size; -1 where there is none."""
_RUN_ID = re.compile(r"\w[\w.-]*")


class _Content(msgspec.Struct, array_like=True):
    form: int
    fields: tuple[str, ...]
    root: str
    runs: dict[str, tuple[_Stamp, RunSummary]]


class RunIndex:
    """All runs below Footplate's home, as summaries."""

    def __init__(self) -> None:
        self._root = paths.runs_folder()
        self._kept: dict[str, tuple[_Stamp, RunSummary]] | None = None

    @staticmethod
    def file() -> Path:
        return paths.home() / "runs.index"

    def summaries(
        self, unreadable: Callable[[str, Exception], None] = lambda _run_id, _error: None
    ) -> Iterator[RunSummary]:
        """Each run there is, newest first. Folders that hold no job, or are not ours to read, are passed over; so is
        one that anything else is wrong with, of which `unreadable` is told.

        Once all have been gone through, what can be kept is written to the index, where that can be done.
        """
        if self._kept is None:
            self._kept = self._load()
        before, kept = self._kept, {}
        for name in run_names():
            # Before the files are read, so that what changes meanwhile is read again the next time.
            stamp = _stamp(f"{self._root}/{name}")
            known = before.get(name)
            if known is not None and known[0] == stamp:
                kept[name] = known
                yield known[1]
                continue
            run = RunFolder(self._root / name)
            try:
                if not run.job_file.is_file():
                    continue
                summary = run.summary()
            except (FileNotFoundError, PermissionError):
                continue
            except Exception as error:  # whatever one run's files hold, the others are to be seen
                unreadable(name, error)
                continue
            # A process that has ended never comes back: such a state stays while the files do.
            if summary.state in ENDED and time.time_ns() - stamp[0] > _TICK_NS:
                kept[name] = (stamp, summary)
            yield summary
        self._kept = kept
        if kept.keys() != before.keys() or any(kept[run_id] is not before[run_id] for run_id in kept):
            self._save()

    def _load(self) -> dict[str, tuple[_Stamp, RunSummary]]:
        try:
            data = self.file().read_bytes()
            if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
                return {}
            content = msgspec.msgpack.decode(data[4:], type=_Content)
        except (OSError, *NOT_DECODED):
            return {}
        same = (content.form, content.fields, content.root) == (_FORM, RunSummary.__struct_fields__, str(self._root))
        return content.runs if same else {}

    def _save(self) -> None:
        assert self._kept is not None
        content = _Content(_FORM, RunSummary.__struct_fields__, str(self._root), self._kept)
        data = msgspec.msgpack.encode(content)
        with suppress(OSError):  # without the file the list is only slower the next time
            paths.write_atomically(self.file(), zlib.crc32(data).to_bytes(4, "little") + data)


def find_run(name: str) -> RunFolder | None:
    """The run whose id is `name`, begins with it, or whose own name it is; "last" is the newest."""
    runs = list_runs()
    if name == "last":
        return runs[0] if runs else None
    exact = next((run for run in runs if run.run_id == name), None)
    if exact is not None or not name:
        return exact
    named = next((run.run_id for run in RunIndex().summaries() if run.name == name), None)
    return next((run for run in runs if run.run_id == named or (named is None and run.run_id.startswith(name))), None)


def mirror_folder(host: str, run_id: str) -> RunFolder:
    """Return the local copy of a run of another machine.

    Raises:
        ValueError: `run_id`, which that machine has sent, is not an id.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(f"{run_id!r} is not the id of a run")
    return RunFolder(mirrors_of(host) / run_id)


def mirrors_of(host: str) -> Path:
    """Return the folder with the local copies of all followed runs of `host`."""
    return paths.home() / "remote" / host


def machine_of(run: RunFolder) -> str:
    """Return the name of the host of a local copy, "" for a run of this machine."""
    host = run.path.parent
    return host.name if host == mirrors_of(host.name) else ""


def _stamp(folder: str) -> _Stamp:
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return (-1, -1, -1)
    try:
        log = os.stat(f"{folder}/events.jsonl")
    except OSError:
        return (changed, -1, -1)
    return (changed, log.st_mtime_ns, log.st_size)
