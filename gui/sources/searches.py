"""Reader of the searches on disk, which polls them on a worker thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.catalogue import load_catalogue
from engine.contract.job import FIELDS
from engine.contract.search import OPTION, SEARCH_FILE, Choices, Dimension, Goal, Search, SearchState, Status, TrialRow
from engine.runs.searches import SearchFolder, list_searches
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.format import NOT_KNOWN, duration
from gui.format import localized, metric_value, significant
from gui.sources.background import SingleFlight
from gui.sources.columns import Floats
from gui.titles import CHOICES, model_title, strategy_title
from gui.translation import tr


@dataclass(frozen=True)
class Axis:
    """Axis of a plot for a searched field.

    Positions are the values, their decimal logarithms if `log`, or indices into `choices`.
    """

    name: str
    label: str
    low: float
    high: float
    log: bool = False
    choices: tuple[Any, ...] = ()

    def position(self, value: Any) -> float:
        """Return the position of a value on the axis, or NaN if it has none."""
        if self.choices:
            return float(self.choices.index(value)) if value in self.choices else math.nan
        if not isinstance(value, int | float) or (self.log and value <= 0):
            return math.nan
        return math.log10(value) if self.log else float(value)

    def ticks(self) -> list[tuple[float, str]]:
        """Return positions and titles of the ticks: both ends of the range, or all choices."""
        if self.choices:
            return [(float(index), format_field_value(self.name, value)) for index, value in enumerate(self.choices)]
        ends = dict.fromkeys((self.low, self.high))
        return [(end, format_field_value(self.name, 10**end if self.log else end)) for end in ends]


@dataclass(frozen=True)
class JoinedCurves:
    """Curves that are concatenated with NaN in between, so that they can be drawn as one line."""

    x: Floats
    y: Floats


@dataclass(frozen=True)
class SearchData:
    """Data of a search for display. `trials` doesn't include repetitions with other seeds.

    Attributes:
        positions: Positions of the parameters on the axes, [trials, axes]. Unknown positions are NaN.
        values: Results, [trials, goals], in the units in which they are displayed (see `display_factor`).
        pruned: Curves over epochs of the trials that were stopped early or failed.
        others: Curves over epochs of the other trials.
    """

    folder: SearchFolder
    search: Search
    state: SearchState
    status: Status
    trials: tuple[TrialRow, ...]
    axes: tuple[Axis, ...]
    positions: Floats
    values: Floats
    pruned: JoinedCurves
    others: JoinedCurves

    @property
    def has_repetitions(self) -> bool:
        """True if the search has repeated trials with other seeds, or will repeat them."""
        return self.search.confirm > 0 or any(row.confirmed for row in self.trials)

    @property
    def best(self) -> TrialRow | None:
        """Best trial by the first goal, even if there are several goals, or None if no trial has a result."""
        if self.state.best is not None or not self.state.front:
            return self.state.row(self.state.best)
        # With several goals, the search has no single best trial, but a Pareto front.
        goal = self.search.goals[0]
        front = [row for row in self.trials if row.number in self.state.front and row.values[0] is not None]
        key = (lambda row: row.values[0]) if goal.higher_is_better else (lambda row: -row.values[0])
        return max(front, key=key, default=None)


def to_search_data(folder: SearchFolder, search: Search, state: SearchState, status: Status) -> SearchData:
    """Convert a search and its state to data for display."""
    axes = tuple(_make_axis(name, dimension) for name, dimension in search.space.items())
    rows, goals = state.originals, search.goals
    positions = np.array([[axis.position(row.params.get(axis.name)) for axis in axes] for row in rows], np.float64)
    scales = np.array([display_factor(goal) for goal in goals])
    values = np.array([[math.nan if value is None else value for value in row.values] for row in rows], np.float64)
    ended_early = [row for row in rows if row.state in ("pruned", "failed")]
    others = [row for row in rows if row.state not in ("pruned", "failed")]
    return SearchData(
        folder=folder,
        search=search,
        state=state,
        status=status,
        trials=rows,
        axes=axes,
        positions=positions.reshape(len(rows), len(axes)),
        values=values.reshape(len(rows), len(goals)) * scales,
        pruned=join_curves(ended_early, goals[0]),
        others=join_curves(others, goals[0]),
    )


def join_curves(rows: Sequence[TrialRow], goal: Goal) -> JoinedCurves:
    """Return the curves of trials as one line: the values of `goal` in its display unit over epochs."""
    x = np.fromiter(chain.from_iterable((*row.reported, math.nan) for row in rows), np.float64)
    y = np.fromiter(chain.from_iterable((*row.reported.values(), math.nan) for row in rows), np.float64)
    return JoinedCurves(x, y * display_factor(goal))


def display_factor(goal: Goal) -> float:
    """Return the factor that converts a result to the unit in which it is displayed. Fractions become percentages."""
    return 100.0 if goal.percent else 1.0


def format_goal_value(goal: Goal, value: float | None) -> str:
    """Format a value of a goal, as in "93.4%", "0.2134", "3:12 min" or "11.2 M", or return a dash for None."""
    if value is None or math.isnan(value):
        return NOT_KNOWN
    if goal.measure == "seconds":
        return duration(value)
    if goal.measure == "parameters":
        return f"{localized(value / 1e6, 2)} M"
    return metric_value(value, percent=goal.percent)


def field_label(name: str) -> str:
    """Return the label of a field that a search varies."""
    if not name.startswith(OPTION):
        return FIELDS[name].label if name in FIELDS else name
    option = name.removeprefix(OPTION)
    return next((field.label for _title, field in load_catalogue().options() if field.name == option), option)


def format_field_value(name: str, value: Any) -> str:
    """Format a field's value as the form shows it."""
    if value is None or value in ("", ()):
        return tr("none")
    if isinstance(value, bool):
        return tr("on") if value else tr("off")
    if isinstance(value, float):
        return significant(value, 3)
    if isinstance(value, str):
        titles = {"model": model_title, "strategy": strategy_title}
        return titles[name](value) if name in titles else CHOICES.get(value, value)
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _make_axis(name: str, dimension: Dimension) -> Axis:
    """Return an axis for the field `name`, with positions for the values that the search tries (`dimension`)."""
    label = field_label(name)
    if isinstance(dimension, Choices):
        return Axis(name, label, 0.0, float(max(1, len(dimension.values) - 1)), choices=dimension.values)
    low, high = float(dimension.low), float(dimension.high)
    if dimension.log:
        low, high = math.log10(low), math.log10(high)
    return Axis(name, label, low, high, log=dimension.log)


POLL_MS = 1000


class _Signature(NamedTuple):
    """Values that change with the content of a file."""

    mtime_ns: int
    size_bytes: int
    inode: int


@dataclass(frozen=True)
class SearchLine:
    """Row in the list of searches. If a search can't be read, `search` is None and `why` is the error.

    `changed` is the time of the last change of its files, in seconds since the epoch.
    """

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
class _CachedSearch:
    """Content of a search, and the signatures of the files that it was read from.

    If the search can't be read, `search` is None and `why` is the error.
    """

    signatures: tuple[_Signature | None, ...]
    search: Search | None
    why: str
    state: SearchState


class _PollResult(NamedTuple):
    """Result of a poll: all rows and, if changed, the opened search's data or why it can't be shown.

    `version` is a value that changes with the opened search, and `previous_version` the one that the poll began with.
    """

    lines: list[SearchLine]
    opened: str
    previous_version: tuple[object, ...]
    version: tuple[object, ...]
    data_or_reason: SearchData | str | None


class Searches(QObject):
    """List of the searches, and the content of the opened one. Changed files are reloaded.

    Signals:
        listed(list[SearchLine]): all searches, newest first.
        loaded(SearchData): new content of the opened search.
        lost(str): the reason why the opened search can't be shown.
    """

    listed = Signal(list)
    loaded = Signal(object)
    lost = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._cache: dict[str, _CachedSearch] = {}  # results of the last read, by name
        self._opened = ""
        self._version: tuple[object, ...] = ()  # of the opened search when it was last emitted
        self._closed = False
        self._flight = SingleFlight(self, lambda: partial(self._read, self._opened, self._version), self._on_read)
        self._timer = QTimer(self, interval=POLL_MS)
        self._timer.timeout.connect(self.refresh)

    def start(self) -> None:
        """Read the searches now, and then every second."""
        self._closed = False
        self._timer.start()
        self.refresh()

    def stop(self) -> None:
        self._timer.stop()

    def open(self, name: str) -> None:
        """Emit the content of the search `name` from now on, or no content if `name` is ""."""
        self._opened, self._version = name, ()
        if name:
            self.refresh()

    def refresh(self) -> None:
        """Read changed files. If a read is in progress, schedule another one."""
        self._flight.request()

    def close(self) -> None:
        """Stop polling, and wait for the current read."""
        self._timer.stop()
        self._closed = True
        self._flight.finish()

    def _on_read(self, read: _PollResult) -> None:
        """Emit the list, and the opened search if it has changed.

        The opened search is left out if it, or another one, has been opened since the poll began.
        """
        if self._closed:
            return
        self.listed.emit(read.lines)
        if (read.opened, read.previous_version) == (self._opened, self._version):
            self._version = read.version
            if isinstance(read.data_or_reason, str):
                self.lost.emit(read.data_or_reason)
            elif read.data_or_reason is not None:
                self.loaded.emit(read.data_or_reason)

    def _read(self, opened: str, version: tuple[object, ...]) -> _PollResult:
        """Read all searches, and the content of the search `opened` if its version is no longer `version`."""
        folders = list_searches()
        self._cache = {folder.name: self._read_search(folder) for folder in folders}
        lines = [_make_row(folder, self._cache[folder.name]) for folder in folders]
        lines.sort(key=lambda line: line.changed, reverse=True)
        line = next((line for line in lines if line.name == opened), None)
        new_version: tuple[object, ...] = ()
        if line is not None:
            new_version = self._cache[opened].signatures, line.status, line.why
        elif opened:
            new_version = ("gone",)
        data_or_reason = _get_data_or_reason(opened, line) if new_version != version else None
        return _PollResult(lines, opened, version, new_version, data_or_reason)

    def _read_search(self, folder: SearchFolder) -> _CachedSearch:
        """Return the content of a search, from the cache if its files haven't changed."""
        cached = self._cache.get(folder.name)
        search_file = folder.path / SEARCH_FILE
        signatures = (_read_signature(search_file), _read_signature(folder.state_file))
        if cached is not None and cached.signatures == signatures:
            return cached
        search = folder.search()
        why = "" if search is not None else _read_error(search_file)
        return _CachedSearch(signatures, search, why, _read_state(folder, cached))


def _get_data_or_reason(opened: str, line: SearchLine | None) -> SearchData | str | None:
    """Return the data of the search `opened`, or the reason why it can't be shown. Return None if `opened` is ""."""
    if line is None:
        return tr("The folder of the search “{opened}” is gone.").format(opened=opened) if opened else None
    if line.search is None:
        return line.why or None
    return to_search_data(line.folder, line.search, line.state, line.status)


def _read_state(folder: SearchFolder, previous: _CachedSearch | None) -> SearchState:
    """Return the state of a search. While its file can't be read, return the previous state, if any."""
    state = folder.state()
    return previous.state if not state.time and previous is not None else state


def _make_row(folder: SearchFolder, content: _CachedSearch) -> SearchLine:
    """Return the row of a search in the list of searches, with its present status."""
    ended = content.state.ended
    # `SearchFolder.status` would read the state a second time.
    status = ended if ended and folder.driver() is None else folder.status()
    mtimes_ns = [signature.mtime_ns for signature in content.signatures if signature is not None]
    changed = max(mtimes_ns, default=0) / 1e9
    return SearchLine(folder, status, content.state, content.search, content.why, changed)


def _read_signature(file: Path) -> _Signature | None:
    """Return the signature of a file, or None if the file can't be read."""
    try:
        info = file.stat()
    except OSError:
        return None
    return _Signature(info.st_mtime_ns, info.st_size, info.st_ino)


def _read_error(file: Path) -> str:
    """Describe why the file of a search can't be read, or return "" if it can."""
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
