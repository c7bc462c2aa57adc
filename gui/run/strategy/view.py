"""Measurements of a run's strategy: pipeline stages, schedule, and time per rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QWidget

from engine.contract.events import Planned, RanksTimed, RankTimes
from engine.parallel.split_points import compute_stages
from gui.format import localized
from gui.run.strategy import schedule
from gui.run.strategy.schedule import ScheduleDiagram, rank_color, rank_title
from gui.sources.run_data import RunData
from gui.split_points import stage_format
from gui.split_points.diagram import StageDiagram
from gui.style import fills, theme
from gui.titles import rank_titles
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import vbox


class StrategyView(QWidget):
    """View of a run's split into pipeline stages, its schedule and its ranks. Sections without data are hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = StageDiagram(read_only=True)
        self.schedule = ScheduleDiagram()
        self.ranks = RankBars()
        self._displayed_plan: Planned | None = None  # plan with the displayed split
        self._displayed_titles: tuple[str, ...] = ()  # titles of the split's ranks
        self._diagrams = {
            "stages": _TitledDiagram(self.stages),
            "schedule": _TitledDiagram(self.schedule),
            "ranks": _TitledDiagram(self.ranks),
        }
        self.setLayout(vbox(*self._diagrams.values(), 1, spacing=10, margins=(0, 4, 0, 4)))
        self.reset()

    def reset(self) -> None:
        """Hide the view and each of its diagrams, before another run or execution is shown."""
        self._displayed_plan = None
        for diagram in self._diagrams.values():
            diagram.set_headline("")  # hides the diagram
        self.hide()

    def headline(self, name: str) -> str:
        """Return the headline of the diagram `name`: "stages", "schedule" or "ranks"."""
        return self._diagrams[name].headline.text()

    def show_data(self, data: RunData, names: Mapping[str, str]) -> None:
        """Show the latest stages, schedule and times per rank. `names` contains the titles of devices by id."""
        self._show_split(data, names)
        self._show_schedule(data, names)
        self._show_ranks(data, names)
        self.setVisible(any(not diagram.isHidden() for diagram in self._diagrams.values()))
        # Leave the remaining height to the curves and the log.
        self.setMaximumHeight(max(1, self.sizeHint().height()))

    def _show_split(self, data: RunData, names: Mapping[str, str]) -> None:
        """Show how the model is split into pipeline stages, unless that is already visible."""
        plan = data.plan
        if plan is None or plan.model_split is None:
            return
        titles = rank_titles(plan.model_split.devices, names)
        if plan is self._displayed_plan and titles == self._displayed_titles:
            return
        self._displayed_plan, self._displayed_titles = plan, titles
        try:
            self.stages.show_split(plan.model_split, titles)
        except ValueError:
            return  # a log of another version may have other split points
        count = len(plan.model_split.stage_ranks)
        balance = stage_format.describe_balance(plan.model_split, compute_stages(plan.model_split))
        self._diagrams["stages"].set_headline(
            tr("Split into {count} stages. {balance}").format(count=count, balance=balance)
        )

    def _show_schedule(self, data: RunData, names: Mapping[str, str]) -> None:
        """Show the measured schedule of a pipeline, if there is one."""
        if data.trace is None:
            return
        devices = _devices(data)[: len(data.trace.ranks)]
        self.schedule.show_trace(data.trace, devices, rank_titles(devices, names))
        self._diagrams["schedule"].set_headline(
            tr("{headline}, step {step}").format(
                headline=schedule.headline(data.trace), step=localized(data.trace.step)
            )
        )

    def _show_ranks(self, data: RunData, names: Mapping[str, str]) -> None:
        """Show the measured times of all ranks, if there are any."""
        if data.rank_times is None:
            return
        devices = _devices(data)[: len(data.rank_times.ranks)]
        titles = rank_titles(devices, names)
        self.ranks.show_times(data.rank_times, devices, titles)
        self._diagrams["ranks"].set_headline(
            tr("{headline}, step {step}").format(
                headline=make_ranks_headline(data.rank_times, titles), step=localized(data.rank_times.step)
            )
        )


class _TitledDiagram(QFrame):
    def __init__(self, diagram: QWidget) -> None:
        super().__init__()
        self.headline = styled(ElidedLabel(), "heading")  # not wrapped, because splitters ignore the additional height
        self.setLayout(vbox(self.headline, diagram, spacing=5))

    def set_headline(self, text: str) -> None:
        """Set the headline of the diagram. Without one, the diagram is hidden, because it has no data."""
        self.headline.setText(text)
        self.setVisible(bool(text))


def _devices(data: RunData) -> tuple[str, ...]:
    """Return the device of each rank, or () before the run has started."""
    return data.started.job.parallel.devices if data.started is not None else ()


SECTIONS = ("compute", "communication", "waiting")
"""Parts of a rank's time, in the order of their segments in its bar."""
ROW, GAP, HEAD = 22, 5, 24
"""Heights in pixels of a bar, of the gap between bars, and of the legend above them."""
SWATCH, PAD = 14, 14
"""Side length of a color sample in the legend, and space after an entry, in pixels."""
MIN_WIDTH_WITH_NUMBERS = 560
"""Minimum width in pixels for showing the columns with numbers."""


def make_ranks_headline(timed: RanksTimed, titles: Sequence[str]) -> str:
    """Return a headline, as in "Rank 1 (GPU 2) is the slowest: the others wait 23% of each step for it".

    If no rank is much slower than the others, the headline says that they are balanced. `titles` are the titles of the
    ranks' devices.
    """
    if timed.straggler is None or not 0 <= timed.straggler < len(timed.ranks):
        return tr("The ranks are balanced")
    others = [times for rank, times in enumerate(timed.ranks) if rank != timed.straggler]
    fractions = [times.waiting_s / _total_s(times) for times in others if _total_s(times) > 0]
    mean_fraction = sum(fractions) / len(fractions) if fractions else 0.0
    rank = tr("Rank {rank}").format(rank=timed.straggler)
    if timed.straggler < len(titles):
        rank += f" ({titles[timed.straggler]})"
    text = (
        tr("{rank} is the slowest: the other waits {percent:.0f}% of each step for it")
        if len(others) == 1
        else tr("{rank} is the slowest: the others wait {percent:.0f}% of each step for it")
    )
    return text.format(rank=rank, percent=100 * mean_fraction)


def describe_rank_times(timed: RanksTimed, titles: Sequence[str]) -> str:
    """Describe the times of all ranks in a step for screen readers. `titles` are the titles of the ranks' devices."""
    sentences = [make_ranks_headline(timed, titles), tr("Step {step}").format(step=localized(timed.step))]
    for rank, times in enumerate(timed.ranks):
        section_times = zip(SECTIONS, _list_section_times(times), strict=True)
        texts = [f"{section} {_format_ms(seconds)} ms" for section, seconds in section_times]
        sentences.append(f"{rank_title(rank, titles)}: {', '.join(texts)}")
    return ". ".join(sentences) + "."


class RankBars(QWidget):
    """Bars for the times of all ranks: solid for computing, hatched for communication, empty for waiting."""

    def __init__(self) -> None:
        super().__init__()
        self._timed: RanksTimed | None = None
        self._devices: tuple[str, ...] = ()
        self._titles: tuple[str, ...] = ()
        self.setAccessibleName(tr("Time of each rank"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_times(self, timed: RanksTimed, devices: tuple[str, ...], titles: tuple[str, ...]) -> None:
        """Show the measured times `timed`. `devices` are the devices of the ranks, and `titles` their titles."""
        if timed is self._timed and titles == self._titles:
            return
        self._timed, self._devices, self._titles = timed, devices, titles
        text = describe_rank_times(timed, titles)
        self.setAccessibleDescription(text)
        self.setToolTip(text.replace(". ", ".\n"))
        self.setFixedHeight(self.sizeHint().height())
        self.update()

    def bar(self, rank: int) -> list[QRectF]:
        """Return the rectangles of a rank's bar, in the order of `SECTIONS`."""
        plot = self._plot_rect()
        ranks = self._timed.ranks if self._timed is not None else ()
        longest = max(map(_total_s, ranks), default=0.0) or 1.0  # seconds of the longest bar, which fills the width
        x = plot.left()
        rects = []
        for seconds in _list_section_times(ranks[rank]):
            width = plot.width() * seconds / longest
            rects.append(QRectF(x, HEAD + rank * (ROW + GAP), width, ROW))
            x += width
        return rects

    def sizeHint(self) -> QSize:
        count = len(self._timed.ranks) if self._timed is not None else 0
        return QSize(400, HEAD + count * (ROW + GAP))

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._timed is None:
            return
        painter = QPainter(self)
        painter.setFont(theme.with_tabular_digits(self.font()))
        plot = self._plot_rect()
        column_widths = self._column_widths()
        self._draw_legend(painter, plot, column_widths)
        for rank, times in enumerate(self._timed.ranks):
            self._draw_rank(painter, rank, times, plot, column_widths)

    def _column_widths(self) -> list[int]:
        """Return the widths of the columns with numbers, or an empty list if the widget is too narrow for them."""
        if self.width() < MIN_WIDTH_WITH_NUMBERS:
            return []
        metrics = self.fontMetrics()
        return [max(metrics.horizontalAdvance(section) + SWATCH + 6, 64) + PAD for section in SECTIONS]

    def _plot_rect(self) -> QRectF:
        """Return the rectangle of all bars, between the titles of the ranks and the columns with numbers."""
        bold = QFont(self.font())
        bold.setBold(True)  # the title of the slowest rank is bold
        advance = QFontMetrics(bold).horizontalAdvance
        count = len(self._timed.ranks) if self._timed is not None else 0
        left = max((advance(rank_title(rank, self._titles)) for rank in range(count)), default=0) + 10
        left = min(left, self.width() // 3)
        return QRectF(left, 0, max(1, self.width() - left - sum(self._column_widths()) - 2), self.height())

    def _draw_legend(self, painter: QPainter, plot: QRectF, column_widths: list[int]) -> None:
        """Draw the legend above `plot`, the rectangle of the bars.

        If there are columns with numbers, each entry is the header of its column. `column_widths` is empty without
        columns.
        """
        scheme = theme.colors()
        metrics = painter.fontMetrics()
        x = plot.right() if column_widths else plot.left()
        for index, section in enumerate(SECTIONS):
            width = metrics.horizontalAdvance(section) + SWATCH + 6
            left = x + column_widths[index] - width if column_widths else x
            swatch = QRectF(left, (HEAD - SWATCH) / 2 - 1, SWATCH, SWATCH)
            _fill_section(painter, swatch, section, rank_color(self._devices, 0))
            painter.setPen(QColor(scheme.muted))
            painter.drawText(QPointF(left + SWATCH + 6, swatch.bottom() - 2), section)
            x += column_widths[index] if column_widths else width + PAD
        if column_widths:
            painter.drawText(QRectF(0, 0, plot.left(), HEAD - 3), Qt.AlignmentFlag.AlignVCenter, tr("ms per step"))

    def _draw_rank(
        self, painter: QPainter, rank: int, times: RankTimes, plot: QRectF, column_widths: list[int]
    ) -> None:
        """Draw the title and the bar of a rank, with its times in columns or, without columns, in the bar.

        The title of the slowest rank is bold. `plot` is the rectangle of the bars, and `column_widths` is empty without
        columns.
        """
        scheme = theme.colors()
        color = rank_color(self._devices, rank)
        metrics = painter.fontMetrics()
        for section, rect, seconds in zip(SECTIONS, self.bar(rank), _list_section_times(times), strict=True):
            text_color = _fill_section(painter, rect, section, color)
            text = _format_ms(seconds)
            if not column_widths and rect.width() > metrics.horizontalAdvance(text) + 8:
                painter.setPen(text_color)
                painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)
        y = HEAD + rank * (ROW + GAP)
        is_slowest = self._timed is not None and self._timed.straggler == rank
        font = painter.font()
        font.setBold(is_slowest)
        painter.setFont(font)
        painter.setPen(QColor(scheme.text))
        title_width = plot.left() - 8
        title = painter.fontMetrics().elidedText(
            rank_title(rank, self._titles), Qt.TextElideMode.ElideRight, int(title_width)
        )
        painter.drawText(QRectF(0, y, title_width, ROW), Qt.AlignmentFlag.AlignVCenter, title)
        x = plot.right()
        for width, seconds in zip(column_widths, _list_section_times(times), strict=False):  # there may be no columns
            right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(QRectF(x, y, width, ROW), right, _format_ms(seconds))
            x += width
        font.setBold(False)
        painter.setFont(font)


def _fill_section(painter: QPainter, rect: QRectF, section: str, color: str) -> QColor:
    """Fill `rect` for `section`, one of `SECTIONS`, of a rank's bar. `color` is the color of the rank's device.

    Returns a color for numbers that is readable on the section.
    """
    scheme = theme.colors()
    if section == "compute":
        painter.fillRect(rect, QColor(color))
        return fills.choose_text_color(QColor(color))
    if section == "communication":
        painter.fillRect(rect, fills.blend(color, scheme.panel, 0.2))
        painter.fillRect(rect, QBrush(fills.blend(color, scheme.panel, 0.75), Qt.BrushStyle.BDiagPattern))
    else:
        painter.fillRect(rect, QColor(scheme.raised))
        if rect.width() > 2:
            painter.setPen(QColor(scheme.border))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(rect.adjusted(0, 0, -1, -1))
    return QColor(scheme.text)


def _list_section_times(times: RankTimes) -> tuple[float, float, float]:
    """Return the seconds of a rank in each of `SECTIONS`."""
    return times.compute_s, times.communication_s, times.waiting_s


def _total_s(times: RankTimes) -> float:
    return sum(_list_section_times(times))


def _format_ms(seconds: float) -> str:
    return localized(1000 * seconds, 1) if seconds < 0.1 else localized(1000 * seconds)
