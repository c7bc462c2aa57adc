"""Measured strategy of a run: model cut, pipeline schedule, and time per rank."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtWidgets import QFrame, QWidget

from engine.contract.events import Planned
from engine.parallel.cut import stages
from gui.cut import cut_format
from gui.cut.diagram import CutDiagram
from gui.format import localised
from gui.run.strategy import rank_bars, schedule
from gui.run.strategy.rank_bars import RankBars
from gui.run.strategy.schedule import ScheduleDiagram
from gui.sources.run_data import RunData
from gui.titles import rank_titles
from gui.translation import tr
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import vbox


class StrategyView(QWidget):
    """Cut, schedule and ranks of a run; parts without data are hidden."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.cut = CutDiagram(read_only=True)
        self.schedule = ScheduleDiagram()
        self.ranks = RankBars()
        self._shown: tuple[Planned, tuple[str, ...]] | None = None
        self._parts = {
            "cut": _Part(self.cut),
            "schedule": _Part(self.schedule),
            "ranks": _Part(self.ranks),
        }
        layout = vbox(*self._parts.values(), 1, spacing=10)
        layout.setContentsMargins(0, 4, 0, 4)
        self.setLayout(layout)
        self.restart()

    def restart(self) -> None:
        """Prepare for another run or execution."""
        self._shown = None
        for part in self._parts.values():
            part.set_headline("")
        self.hide()

    def headline(self, part: str) -> str:
        """Return the headline of "cut", "schedule" or "ranks"."""
        return self._parts[part].headline.text()

    def show_data(self, data: RunData, names: Mapping[str, str]) -> None:
        """Show the latest measurements; `names` are the titles of devices by id."""
        self._show_cut(data, names)
        self._show_schedule(data, names)
        self._show_ranks(data, names)
        self.setVisible(any(not part.isHidden() for part in self._parts.values()))
        # Leave the remaining height to the curves and the log.
        self.setMaximumHeight(max(1, self.sizeHint().height()))

    def _show_cut(self, data: RunData, names: Mapping[str, str]) -> None:
        plan = data.plan
        if plan is None or plan.cut is None:
            return
        titles = rank_titles(plan.cut.devices, names)
        if self._shown is not None and self._shown[0] is plan and self._shown[1] == titles:
            return
        self._shown = plan, titles
        try:
            self.cut.show_cut(plan.cut, titles)
        except ValueError:
            return  # a log of another version may have other cuts
        count = len(plan.cut.stage_ranks)
        balance = cut_format.describe_balance(plan.cut, stages(plan.cut))
        self._parts["cut"].set_headline(tr("Cut into {count} stages. {balance}").format(count=count, balance=balance))

    def _show_schedule(self, data: RunData, names: Mapping[str, str]) -> None:
        if data.trace is None:
            return
        devices = _devices(data)[: len(data.trace.ranks)]
        self.schedule.show_trace(data.trace, devices, rank_titles(devices, names))
        self._parts["schedule"].set_headline(f"{schedule.headline(data.trace)}, step {localised(data.trace.step)}")

    def _show_ranks(self, data: RunData, names: Mapping[str, str]) -> None:
        if data.rank_times is None:
            return
        devices = _devices(data)[: len(data.rank_times.ranks)]
        titles = rank_titles(devices, names)
        self.ranks.show_times(data.rank_times, devices, titles)
        self._parts["ranks"].set_headline(
            f"{rank_bars.headline(data.rank_times, titles)}, step {localised(data.rank_times.step)}"
        )


class _Part(QFrame):
    """Headline above a diagram."""

    def __init__(self, diagram: QWidget) -> None:
        super().__init__()
        self.headline = ElidedLabel()  # splitters ignore the height of wrapped text
        self.headline.setObjectName("heading")
        self.setLayout(vbox(self.headline, diagram, spacing=5))

    def set_headline(self, text: str) -> None:
        if self.headline.text() != text:
            self.headline.setText(text)
            self.headline.setToolTip(text)
        self.setVisible(bool(text))


def _devices(data: RunData) -> tuple[str, ...]:
    return data.started.job.parallel.devices if data.started is not None else ()
