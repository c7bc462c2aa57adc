"""Run in a comparison, and the reader of its log."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from PySide6.QtCore import QObject, Signal

from engine.contract.catalogue import Measure
from engine.contract.job import Job
from engine.runs.folder import RunFolder, RunSummary
from gui.sources.background import CLOSE_S, allowed_wait_s, describe_error, emit_safely
from gui.sources.columns import Floats
from gui.sources.run_data import RunData
from gui.sources.run_reader import LogReader
from gui.sources.run_series import Steps, Validations
from gui.titles import run_title

Over = Literal["step", "epoch", "time"]

GAP_S = 10.0
"""Maximum seconds between two samples of a run that isn't paused. Samples are usually one second apart."""

_JOULES_PER_WH = 3600.0


class BestValue(NamedTuple):
    """Best value of a metric, and the epoch that reached it."""

    value: float
    epoch: int


@dataclass(frozen=True)
class ComparedRun:
    """Run in a comparison.

    Attributes:
        series: Index among the compared runs, which determines its color.
        job: Job of the run, or None if it can't be read.
    """

    series: int
    summary: RunSummary
    job: Job | None
    data: RunData

    @property
    def number(self) -> str:
        """Position of the run in the comparison, counted from 1, as a label where the name doesn't fit."""
        return str(self.series + 1)

    @property
    def title(self) -> str:
        return f"{self.number} · {run_title(self.summary)}"

    def compute_x(self, logged: Steps | Validations, over: Over) -> Floats:
        """Return the x values of the steps or validations in `logged`.

        They are steps, fractional epochs or seconds, depending on `over`. Returns an empty array for epochs if the
        number of steps per epoch is unknown.
        """
        if over == "time":
            return logged.seconds.values
        if over == "step":
            return logged.step.values
        plan = self.data.plan
        if plan is None or not plan.steps_per_epoch:
            return np.empty(0)
        return logged.step.values / plan.steps_per_epoch

    def find_best(self, measure: Measure) -> BestValue | None:
        """Return the best value of a metric and its epoch. Return None if the run has no finite value of it.

        Of several epochs with that value, the one with the lowest loss is returned, as for the best checkpoint.
        """
        columns = self.data.validations.measures
        if measure.id not in columns or not np.isfinite(columns[measure.id].values).any():
            return None
        values = columns[measure.id].values
        losses = columns["loss"].values if "loss" in columns else np.zeros_like(values)
        # Sort by the value, then by the loss. NaN is sorted last.
        index = int(np.lexsort((losses, -values if measure.higher_is_better else values))[0])
        return BestValue(float(values[index]), int(self.data.validations.epoch.values[index]))

    @property
    def images_per_second(self) -> float | None:
        """Median speed in images per second, or None if it is unknown.

        The first value is excluded if there are others, because it includes warm-up.
        """
        rates = self.data.steps.images_per_second.values
        warm_rates = rates[1:] if len(rates) > 1 else rates
        known_rates = warm_rates[np.isfinite(warm_rates)]
        return float(np.median(known_rates)) if len(known_rates) else None

    @property
    def energy_wh(self) -> float | None:
        """Energy of the devices while they were sampled, in watt-hours, or None if no device reports its power.

        Computed with the trapezoidal rule. Gaps longer than `GAP_S` are left out.
        """
        energies = [_integrate_power(each.seconds.values, each.power_w.values) for each in self.data.devices.values()]
        known = [energy for energy in energies if energy is not None]
        return sum(known) / _JOULES_PER_WH if known else None


def _integrate_power(seconds: Floats, power_w: Floats) -> float | None:
    """Return the energy in joules: the integral of the power over time, without gaps longer than `GAP_S`.

    Returns None for fewer than two known values.
    """
    is_known = np.isfinite(power_w)
    if is_known.sum() < 2:
        return None
    seconds, power_w = seconds[is_known], power_w[is_known]
    intervals_s = np.diff(seconds)
    mean_power_w = (power_w[1:] + power_w[:-1]) / 2
    return float(np.sum(np.where(intervals_s <= GAP_S, intervals_s * mean_power_w, 0.0)))


class LogLoader(QObject):
    """Loader that reads runs one after another on a worker thread.

    Starting it again cancels the previous work.

    Signals:
        read(ComparedRun): a run has been read completely.
        unread(str, str): a run with this id can't be read, for this reason. The reason is "" if it was deleted.
        complete(): all runs have been read.
    """

    read = Signal(object)
    unread = Signal(str, str)
    complete = Signal()
    _loaded = Signal(int, object, object)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._generation = 0  # number of the current request, which tells outdated results apart
        self._thread: threading.Thread | None = None
        self._stop_event = threading.Event()
        self._loaded.connect(self._on_loaded)

    def start(self, runs: Sequence[tuple[int, RunFolder]]) -> None:
        """Start a thread that reads `runs`, each with its index among the compared runs."""
        self.stop()
        self._stop_event = threading.Event()
        self._thread = threading.Thread(
            target=self._work, args=(self._generation, list(runs), self._stop_event), name="compared runs", daemon=True
        )
        self._thread.start()

    @property
    def running(self) -> bool:
        """True until all runs of the last request have been read or `stop` has been called."""
        return self._thread is not None

    def stop(self) -> None:
        """Ask the thread to stop reading without waiting for it, and discard results that haven't been delivered."""
        self._generation += 1
        self._stop_event.set()
        self._thread = None

    def close(self) -> None:
        """Stop reading, and wait for the thread for at most `CLOSE_S` seconds. Called when the window closes."""
        thread = self._thread
        self.stop()
        if thread is not None:
            thread.join(allowed_wait_s(CLOSE_S))

    def _work(self, generation: int, runs: list[tuple[int, RunFolder]], is_stopped: threading.Event) -> None:
        """Read the runs one by one on the worker thread, and emit `_loaded` with each result.

        A result is a ComparedRun, or the reason why the run can't be read ("" if it doesn't exist). It is emitted with
        `generation`, the number of the request, and the run's id. After the last run, id and result are None.
        """
        for series, run in runs:
            result: ComparedRun | str
            try:
                result = read_run(series, run, is_stopped) or ""
            except Exception as error:  # a damaged run must not hide the others
                result = describe_error(error)
            if is_stopped.is_set() or not emit_safely(self._loaded, generation, run.run_id, result):
                return
        emit_safely(self._loaded, generation, None, None)

    def _on_loaded(self, generation: int, run_id: str | None, result: ComparedRun | str) -> None:
        """Emit `read`, `unread` or `complete` on the GUI thread for a result of the worker thread.

        Results of earlier requests, which have another `generation`, are ignored.
        """
        if generation != self._generation:
            return
        if run_id is None:
            self._thread = None
            self.complete.emit()
        elif isinstance(result, str):
            self.unread.emit(run_id, result)
        else:
            self.read.emit(result)


def read_run(series: int, run: RunFolder, is_stopped: threading.Event) -> ComparedRun | None:
    """Read a run to the end of its log or until `is_stopped` is set. Return None if it doesn't exist.

    `series` is its index among the compared runs.

    Raises OSError if the run can't be read, or other errors if it is damaged.
    """
    try:
        summary = run.summary()
    except FileNotFoundError:
        return None
    data = RunData()
    reader = LogReader(run.events_file)
    try:
        while not is_stopped.is_set() and (events := reader.read()) is not None:
            data.apply_all(events)
    finally:
        reader.close()
    job = data.started.job if data.started is not None else run.job()
    return ComparedRun(series, summary, job, data)
