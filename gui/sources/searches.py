"""The searches there are, and one of them followed as it goes: read every second, away from the window's thread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.search import SEARCH_FILE, Search, SearchState, Status
from engine.runs.searches import SearchFolder, list_searches
from engine.system.decode_errors import NOT_DECODED
from gui.sources.background import Background, expected_of_a_disk, in_background
from gui.sources.search_data import SearchData, data_of

LOOK_EVERY_MS = 1000

_Signature = tuple[int, int, int]


@dataclass(frozen=True)
class SearchLine:
    """A search in the list. `search` is None where it can't be read, and `why` says why."""

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
    """What was read of a search, and from which versions of its files."""

    signatures: tuple[_Signature | None, ...]
    search: Search | None
    why: str
    state: SearchState


class Searches(QObject):
    """Reads anew what has changed on the disk, while it is looking.

    Signals:
        listed(list[SearchLine]): all searches, the newest first.
        shown(SearchData): the one that is followed, whenever there is something new of it.
        lost(str): why the one that is followed can't be shown.
    """

    listed = Signal(list)
    shown = Signal(object)
    lost = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._known: dict[str, _Known] = {}
        self._followed = ""
        self._told: tuple[object, ...] = ()
        self._reading: Background | None = None
        self._again = self._closed = False
        self._timer = QTimer(self, interval=LOOK_EVERY_MS)
        self._timer.timeout.connect(self.look)

    def start(self) -> None:
        """Looks now, and every second."""
        self._closed = False
        self._timer.start()
        self.look()

    def stop(self) -> None:
        self._timer.stop()

    def follow(self, name: str) -> None:
        """Tells of that search from now on; of none where `name` is ""."""
        self._followed, self._told = name, ()
        if name:
            self.look()

    def look(self) -> None:
        """Reads what has changed; where that is going on already, once more afterwards."""
        if self._reading is not None:
            self._again = True
            return
        followed, told = self._followed, self._told
        self._reading = in_background(lambda: self._read(followed, told), self, self._done, self._failed)

    def close(self) -> None:
        """Ends the reading."""
        self._timer.stop()
        self._closed, self._again = True, False
        if self._reading is not None:
            self._reading.finish()

    def _done(self, read: tuple[list[SearchLine], str, tuple[object, ...], SearchData | str | None]) -> None:
        self._reading = None
        if self._closed:
            return
        lines, followed, told, news = read
        self.listed.emit(lines)
        if followed == self._followed:
            self._told = told
            if isinstance(news, str):
                self.lost.emit(news)
            elif news is not None:
                self.shown.emit(news)
        if self._again:
            self._again = False
            self.look()

    def _failed(self, error: Exception) -> None:
        self._reading = None
        expected_of_a_disk(error)

    def _read(
        self, followed: str, told: tuple[object, ...]
    ) -> tuple[list[SearchLine], str, tuple[object, ...], SearchData | str | None]:
        folders = list_searches()
        self._known = {folder.name: self._look_at(folder) for folder in folders}
        lines = [_line(folder, self._known[folder.name]) for folder in folders]
        lines.sort(key=lambda line: line.changed, reverse=True)
        line = next((line for line in lines if line.name == followed), None)
        news: SearchData | str | None = None
        if line is None:
            seen: tuple[object, ...] = ("",)
            news = f"The folder of the search “{followed}” is gone." if followed else None
        else:
            seen = (self._known[followed].signatures, line.status, line.why)
            news = line.why or None
        if seen == told:
            return lines, followed, told, None
        if line is not None and line.search is not None:
            news = data_of(line.folder, line.search, line.state, line.status)
        return lines, followed, seen, news

    def _look_at(self, folder: SearchFolder) -> _Known:
        known = self._known.get(folder.name)
        files = (folder.path / SEARCH_FILE, folder.state_file)
        signatures = tuple(map(_signature, files))
        if known is not None and known.signatures == signatures:
            return known
        search = folder.search()
        return _Known(signatures, search, "" if search is not None else _why(files[0]), _state(folder, known))


def _state(folder: SearchFolder, before: _Known | None) -> SearchState:
    """How it stands; as it was known where the file can't be read at this moment."""
    state = folder.state()
    return before.state if not state.time and before is not None else state


def _line(folder: SearchFolder, known: _Known) -> SearchLine:
    # `status` reads the state anew, which is known here.
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
    """Why what a search is asked can't be read."""
    try:
        msgspec.json.decode(file.read_bytes(), type=Search)
    except OSError as error:
        return f"{file} can't be read: {error.strerror}. Check its permissions."
    except msgspec.ValidationError as error:
        return f"This search was made by another version of Footplate: {error}. Open it with that version."
    except NOT_DECODED as error:
        return f"{file} is damaged: {error}. The trials' runs are still in Runs."
    return ""
