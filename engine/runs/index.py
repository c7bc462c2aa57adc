"""Cached summaries of all runs. A run is read again only if its files have changed.

The cache is a file in Footplate's home. Each entry has stamps of its source files: one for the log, which grows, and
one for the folder. All other files of a summary (supervisor.json, notes.json, job.toml) are replaced atomically, which
changes the folder's modification time. Therefore two stat calls per run suffice instead of four. A cache that is
damaged, or belongs to another version or folder, is ignored.
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
from engine.system.files import MAX_RESULT_BYTES, read_file

_FORMAT_VERSION = 1
"""Format version of the cache of run summaries. Increase it when the meaning of a summary's field changes."""

_TIME_RESOLUTION_NS = 2_000_000_000
"""Coarsest time resolution of a file system (that of FAT) in nanoseconds.

Summaries of runs that have changed within this time are not cached, since a further change might go unnoticed.
"""

_Stamp = tuple[int, int, int]
"""Values that change whenever a run's summary may change.

They are the modification times of the run folder and its log in nanoseconds since the epoch, and the size of the log in
bytes, or -1 for missing ones.
"""
_RUN_ID = re.compile(r"\w[\w.-]{0,199}")


class _Content(msgspec.Struct, array_like=True):
    """Content of the cache of run summaries.

    `fields` are those of `RunSummary`, and `root` is the runs folder.
    """

    format_version: int
    fields: tuple[str, ...]
    root: str
    runs: dict[str, tuple[_Stamp, RunSummary]]


class RunIndex:
    """Cached summaries of all runs in Footplate's home."""

    def __init__(self) -> None:
        self._root = paths.runs_folder()
        self._cached: dict[str, tuple[_Stamp, RunSummary]] | None = None

    @staticmethod
    def file() -> Path:
        return paths.home() / "runs.index"

    def summaries(
        self, on_unreadable: Callable[[str, Exception], None] = lambda _run_id, _error: None
    ) -> Iterator[RunSummary]:
        """Yield the summaries of all runs, newest first, and update the cache at the end.

        Folders that have no job or can't be accessed are skipped. `on_unreadable` is called with the id and the error of
        each run that can't be read for another reason.
        """
        if self._cached is None:
            self._cached = self._load()
        before, cached = self._cached, {}
        for name in run_names():
            # Take the stamp before reading, so that later changes are noticed the next time.
            stamp = _read_stamp(f"{self._root}/{name}")
            cached_stamp, cached_summary = before.get(name, (None, None))
            if cached_summary is not None and cached_stamp == stamp:
                cached[name] = before[name]
                yield cached_summary
                continue
            run = RunFolder(self._root / name)
            try:
                if not run.job_file.is_file():
                    continue
                summary = run.summary()
            except (FileNotFoundError, PermissionError):
                continue
            except Exception as error:  # one run's damaged files must not hide the others
                on_unreadable(name, error)
                continue
            # An ended process stays ended, so such a state remains valid until the files change.
            folder_changed_ns = stamp[0]
            if summary.state in ENDED and time.time_ns() - folder_changed_ns > _TIME_RESOLUTION_NS:
                cached[name] = (stamp, summary)
            yield summary
        self._cached = cached
        if cached.keys() != before.keys() or any(cached[run_id] is not before[run_id] for run_id in cached):
            self._save()

    def _load(self) -> dict[str, tuple[_Stamp, RunSummary]]:
        """Read the cache of run summaries.

        The result is empty if it is damaged, or belongs to another version or folder.
        """
        try:
            data = read_file(self.file(), MAX_RESULT_BYTES)
            if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
                return {}
            content = msgspec.msgpack.decode(data[4:], type=_Content)
        except (OSError, *NOT_DECODED):
            return {}
        expected = (_FORMAT_VERSION, RunSummary.__struct_fields__, str(self._root))
        return content.runs if (content.format_version, content.fields, content.root) == expected else {}

    def _save(self) -> None:
        """Write the cache of run summaries to the disk, with a checksum before its content."""
        assert self._cached is not None
        content = _Content(_FORMAT_VERSION, RunSummary.__struct_fields__, str(self._root), self._cached)
        data = msgspec.msgpack.encode(content)
        with suppress(OSError):  # without the cache, the next list is only slower
            paths.write_atomically(self.file(), zlib.crc32(data).to_bytes(4, "little") + data)


def find_run(name: str) -> RunFolder | None:
    """Find a run by its id, its name, or the beginning or the last part of its id. Returns None if there is no match.

    "last" means the newest run. A search by name may update the cache of summaries. The window shows the last part of
    the id, such as 2de6.
    """
    runs = list_runs()
    if name == "last":
        return runs[0] if runs else None
    exact = next((run for run in runs if run.run_id == name), None)
    if exact is not None or not name:
        return exact
    # The name of a run is in its notes or its job, so all summaries are needed.
    named = next((run.run_id for run in RunIndex().summaries() if run.name == name), None)
    if named is not None:
        return next((run for run in runs if run.run_id == named), None)
    return next((run for run in runs if run.run_id.startswith(name) or run.run_id.endswith(f"-{name}")), None)


def mirror_folder(host: str, run_id: str) -> RunFolder:
    """Return the folder for the local copy of a run on another machine.

    Raises:
        ValueError: `run_id`, which comes from that machine, is not a run id.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(f"{run_id!r} is not the id of a run")
    return RunFolder(mirrors_folder(host) / run_id)


def mirrors_folder(host: str) -> Path:
    """Return the folder for the local copies of runs on `host`."""
    return paths.home() / "remote" / host


def machine_of(run: RunFolder) -> str:
    """Return the name of the host that a run was copied from, or "" for a run of this machine."""
    host = run.path.parent
    return host.name if host == mirrors_folder(host.name) else ""


def _read_stamp(folder: str) -> _Stamp:
    """Return the modification times of a run folder and its log, and the size of the log, to detect changes."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return (-1, -1, -1)
    try:
        log = os.stat(f"{folder}/events.jsonl")
    except OSError:
        return (changed, -1, -1)
    return (changed, log.st_mtime_ns, log.st_size)
