"""Polling of the searches on the disk, and of one opened search, on a worker thread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.search import SEARCH_FILE, Search, SearchState, Status
from engine.runs.searches import SearchFolder, list_searches
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file
from gui.sources.background import SingleFlight
from gui.sources.search_data import SearchData, data_of
from gui.translation import tr

POLL_MS = 1000

_Signature = tuple[int, int, int]


@dataclass(frozen=True)
class SearchLine:
    """Row of the list of searches. `search` is None if it can't be read; `why` holds the error."""

    folder: SearchFolder
    status: Status
    state: SearchState
    search: Search | None = None
    why: str = ""
    changed: float = 0.0

    @property
    def name(self) -> str:
        return self.folder.name


@dataclass
class _Known:
    """Content of a search and the signatures of the files that it was read from."""

    signatures: tuple[_Signature | None, ...]
    search: Search | None
    why: str
    state: SearchState


class _Read(NamedTuple):
    """Result of one poll: all rows, and the news of the opened search, None if it has not changed."""

    lines: list[SearchLine]
    opened: str
    version: tuple[object, ...]
    news: SearchData | str | None


class Searches(QObject):
    """List of the searches, and the content of the opened one, read again when files change.

    Signals:
        listed(list[SearchLine]): all searches, newest first.
        shown(SearchData): new content of the opened search.
        lost(str): the reason why the opened search can't be shown.
    """

    listed = Signal(list)
    shown = Signal(object)
    lost = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._known: dict[str, _Known] = {}
        self._opened = ""
        self._version: tuple[object, ...] = ()
        self._closed = False
        self._flight = SingleFlight(self, lambda: partial(self._read, self._opened, self._version), self._on_read)
        self._timer = QTimer(self, interval=POLL_MS)
        self._timer.timeout.connect(self.refresh)

    def start(self) -> None:
        """Read the searches now and every second."""
        self._closed = False
        self._timer.start()
        self.refresh()

    def stop(self) -> None:
        self._timer.stop()

    def open(self, name: str) -> None:
        """Report the content of the search `name` from now on, of none if ""."""
        self._opened, self._version = name, ()
        if name:
            self.refresh()

    def refresh(self) -> None:
        """Read changed files, once more if a reading is under way."""
        self._flight.request()

    def close(self) -> None:
        """Stop polling and wait for the current reading."""
        self._timer.stop()
        self._closed = True
        self._flight.finish()

    def _on_read(self, read: _Read) -> None:
        if self._closed:
            return
        self.listed.emit(read.lines)
        if read.opened == self._opened:
            self._version = read.version
            if isinstance(read.news, str):
                self.lost.emit(read.news)
            elif read.news is not None:
                self.shown.emit(read.news)

    def _read(self, opened: str, version: tuple[object, ...]) -> _Read:
        folders = list_searches()
        self._known = {folder.name: self._read_search(folder) for folder in folders}
        lines = [_line(folder, self._known[folder.name]) for folder in folders]
        lines.sort(key=lambda line: line.changed, reverse=True)
        line = next((line for line in lines if line.name == opened), None)
        news: SearchData | str | None = None
        if line is None:
            current: tuple[object, ...] = ("",)
            news = tr("The folder of the search “{opened}” is gone.").format(opened=opened) if opened else None
        else:
            current = (self._known[opened].signatures, line.status, line.why)
            news = line.why or None
        if current == version:
            return _Read(lines, opened, version, None)
        if line is not None and line.search is not None:
            news = data_of(line.folder, line.search, line.state, line.status)
        return _Read(lines, opened, current, news)

    def _read_search(self, folder: SearchFolder) -> _Known:
        known = self._known.get(folder.name)
        files = (folder.path / SEARCH_FILE, folder.state_file)
        signatures = tuple(map(_signature, files))
        if known is not None and known.signatures == signatures:
            return known
        search = folder.search()
        return _Known(signatures, search, "" if search is not None else _why(files[0]), _state(folder, known))


def _state(folder: SearchFolder, before: _Known | None) -> SearchState:
    """Return the search's state, the last known one while the file is unreadable."""
    state = folder.state()
    return before.state if not state.time and before is not None else state


def _line(folder: SearchFolder, known: _Known) -> SearchLine:
    # `SearchFolder.status` would read the state a second time.
    status = known.state.ended if known.state.ended and folder.driver() is None else folder.status()
    changed = max((signature[0] for signature in known.signatures if signature), default=0) / 1e9
    return SearchLine(folder, status or "interrupted", known.state, known.search, known.why, changed)


def _signature(file: Path) -> _Signature | None:
    try:
        info = file.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def _why(file: Path) -> str:
    """Return a message about a search file that can't be read."""
    try:
        msgspec.json.decode(read_file(file, MAX_RESULT_BYTES), type=Search)
    except OSError as error:
        return tr("{file} can't be read: {strerror}. Check its permissions.").format(file=file, strerror=error.strerror)
    except msgspec.ValidationError as error:
        return tr("This search was made by another version of Footplate: {error}. Open it with that version.").format(
            error=error
        )
    except NOT_DECODED as error:
        return tr("{file} is damaged: {error}. The trials' runs are still in Runs.").format(file=file, error=error)
    return ""
