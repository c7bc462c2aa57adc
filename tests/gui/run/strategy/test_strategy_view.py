"""How a strategy went: the cut, the schedule of a pipeline, and who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.events import Action, Planned, RunStarted
from gui.run.strategy import rank_bars, schedule
from gui.run.strategy.rank_bars import RankBars
from gui.run.strategy.schedule import ScheduleDiagram
from gui.run.strategy.view import StrategyView
from gui.sources.run_data import RunData
from gui.style import fills, theme
from tests.gui.cut.example import a_cut
from tests.gui.run.strategy.steps import timed, trace
from tests.gui.sources.devices.snapshots import UUIDS
from tests.gui.sources.written_runs import job

DEVICES = UUIDS[:2]
NAMES = {UUIDS[0]: "GPU 0", UUIDS[1]: "GPU 2"}
TITLES = ("GPU 0", "GPU 2")


def data(*events: object) -> RunData:
    said = RunData()
    started = RunStarted(
        n=1, run_id="a-run", job=job(strategy="pipeline", devices=DEVICES), devices=(), world_size=2, environment={},
        supervisor_pid=1,
    )  # fmt: skip
    said.apply(started)
    for n, event in enumerate(events, 2):
        event.n = n  # type: ignore[attr-defined]
        said.apply(event)  # type: ignore[arg-type]
    return said


def plan(**changes: object) -> Planned:
    values: dict[str, object] = {
        "epochs": 1, "steps_per_epoch": 1, "train_images": 1, "val_images": 1, "classes": ("a", "b"),
        "image_size": 64, "parameters": 1, "trainable_parameters": 1,
    }  # fmt: skip
    return Planned(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def image(styled: QApplication, qtbot: QtBot) -> ScheduleDiagram:
    made = ScheduleDiagram()
    qtbot.addWidget(made)
    made.resize(900, 200)
    made.show_trace(trace(), DEVICES, TITLES)
    made.show()
    return made


@pytest.fixture
def view(styled: QApplication, qtbot: QtBot) -> StrategyView:
    made = StrategyView()
    qtbot.addWidget(made)
    made.resize(900, 500)
    return made


def test_that_a_run_that_says_nothing_of_its_strategy_shows_nothing(view: StrategyView) -> None:
    view.show_data(data(plan()), NAMES)
    assert view.isHidden()


def test_that_what_a_run_says_appears_part_by_part(view: StrategyView) -> None:
    view.show_data(data(plan(cut=a_cut(devices=DEVICES))), NAMES)
    assert view.headline("cut") == "Cut into 2 stages. All devices take the same time (50 % each)."
    assert [view.cut.isVisibleTo(view), view.schedule.isVisibleTo(view), view.ranks.isVisibleTo(view)] == [
        True, False, False,
    ]  # fmt: skip
    view.show_data(data(plan(), trace(), timed()), NAMES)
    assert view.headline("schedule") == "Bubble 33 % measured, 11 % in theory (1F1B, 2 microbatches), step 40"
    assert view.headline("ranks") == (
        "Rank 1 (GPU 2) is the slowest: the other waits 23 % of each step for it, step 40"
    )
    view.restart()
    assert view.isHidden()


def test_that_only_the_latest_trace_is_kept() -> None:
    later = trace(step=80)
    said = data(trace(), timed(), later)
    assert said.trace is later
    assert said.rank_times is not None


def test_that_unequal_shares_are_told_in_the_log() -> None:
    said = data(plan(shares=(0.62, 0.38)))
    assert said.lines[-1].text == "Shares of each batch: 62 %, 38 %, by measured speed"
    assert "Shares" not in data(plan()).lines[-1].text


def test_that_blocks_stand_where_their_time_is_and_idle_is_left_empty(image: ScheduleDiagram) -> None:
    drawn = image.grab().toImage()
    forward, backward = trace().ranks[0][0], trace().ranks[0][2]

    def color_at(place: int, action: Action) -> str:
        block = image.block_of(place, action)
        return drawn.pixelColor(QPoint(int(block.left()) + 3, int(block.top()) + 2)).name()

    own = theme.device_color(DEVICES[0])
    assert color_at(0, forward) == fills.light(own).name()
    assert color_at(0, backward) == own
    assert color_at(1, trace().ranks[1][1]) == theme.device_color(DEVICES[1])
    first = image.block_of(0, trace().ranks[0][1])
    assert image.block_of(0, backward).left() - first.right() == pytest.approx(2 * first.width())
    idle = QPointF((first.right() + image.block_of(0, backward).left()) / 2, first.center().y()).toPoint()
    assert drawn.pixelColor(idle + QPoint(7, 0)).name() == theme.colors().raised


def test_that_the_backward_pass_of_the_weights_is_hatched(image: ScheduleDiagram) -> None:
    drawn = image.grab().toImage()
    block = image.block_of(1, trace().ranks[1][2]).toRect()
    seen = {drawn.pixelColor(x, block.top() + 1).name() for x in range(block.left() + 1, block.right() - 2)}
    assert len(seen) >= 2


def test_that_pointing_at_a_block_tells_what_it_is(image: ScheduleDiagram, qtbot: QtBot) -> None:
    action = trace().ranks[1][2]
    where = image.block_of(1, action).center().toPoint()
    assert image.action_at(where) == action
    assert schedule.describe_action(action) == (
        "Backward for weights, microbatch 0, stage 1: 10.0 ms (from 30.0 ms to 40.0 ms)"
    )
    assert image.action_at(QPoint(2, 2)) is None
    gap = image.block_of(0, trace().ranks[0][1]).right() + 20
    assert image.action_at(QPoint(int(gap), where.y() - 30)) is None


def test_that_stages_of_one_rank_have_lanes_of_their_own(image: ScheduleDiagram) -> None:
    actions = (Action("F", 0, 0, 0.0, 0.01), Action("F", 3, 0, 0.01, 0.02))
    folded = trace(ranks=(actions, trace().ranks[1]), schedule="zbv")
    low = image.height()
    image.show_trace(folded, DEVICES, TITLES)
    assert image.block_of(0, actions[0]).top() < image.block_of(0, actions[1]).top()
    assert image.height() > low


def test_that_the_schedule_is_told_in_words(image: ScheduleDiagram) -> None:
    said = image.accessibleDescription()
    assert said.startswith("Bubble 33 % measured, 11 % in theory (1F1B, 2 microbatches). Step 40 took 90.0 ms.")
    assert "Rank 0 · GPU 0: 4 actions, 60.0 ms busy, 33 % idle." in said
    assert image.accessibleName() == "Schedule of the pipeline"


def test_that_a_batch_that_is_not_divided_is_told_as_whole() -> None:
    first, second = trace().ranks
    undivided = trace(ranks=((first[0], first[2]), (second[0],)), schedule="gpipe")
    assert schedule.headline(undivided) == "Bubble 33 % measured, 11 % in theory (whole batches)"


def test_that_a_large_trace_is_painted_by_kinds_rather_than_blocks_and_not_again(
    styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Painting thousands of blocks one by one would hold up the window at every frame."""
    painted: list[int] = []

    class Counting(QPainter):
        def drawRects(self, rects: Sequence[QRect]) -> None:  # noqa: N802 - Qt's name
            painted.append(len(rects))
            super().drawRects(rects)

        def drawRect(self, rect: QRectF) -> None:  # noqa: N802 - Qt's name
            painted.append(1)
            super().drawRect(rect)

    monkeypatch.setattr(schedule, "QPainter", Counting)
    ranks = tuple(
        tuple(
            Action(kind, place, micro, begin := (3 * micro + part) * 0.01 + place * 0.01, begin + 0.009)  # type: ignore[arg-type]
            for micro in range(64)
            for part, kind in enumerate("FIW")
        )
        for place in range(16)
    )
    made = ScheduleDiagram()
    qtbot.addWidget(made)
    made.show_trace(trace(ranks=ranks, span_s=2.1), UUIDS + UUIDS, tuple(f"GPU {n}" for n in range(16)))
    made.resize(1000, made.height())
    made.show()
    made.grab()
    assert sum(painted) >= 16 * 3 * 64
    assert len(painted) <= 16 * 3 * 2 + 4  # a fill and perhaps a pattern of each kind in each row, and the legend
    painted.clear()
    made.grab()
    assert not painted


def test_that_bars_are_as_long_as_their_times_and_all_to_one_scale(styled: QApplication, qtbot: QtBot) -> None:
    bars = RankBars()
    qtbot.addWidget(bars)
    bars.resize(900, 120)
    bars.show_times(timed(), DEVICES, TITLES)
    bars.show()
    compute, communication, waiting = bars.bar(0)
    assert compute.width() / communication.width() == pytest.approx(50 / 4)
    assert waiting.left() == pytest.approx(communication.right())
    assert waiting.right() == pytest.approx(bars.bar(1)[2].right())
    assert compute.width() / bars.bar(1)[0].width() == pytest.approx(50 / 66)
    drawn = bars.grab().toImage()
    assert drawn.pixelColor(compute.center().toPoint()).name() == theme.device_color(DEVICES[0])
    assert drawn.pixelColor(bars.bar(1)[0].center().toPoint()).name() == theme.device_color(DEVICES[1])
    hatched = bars.bar(0)[1].toRect()
    row = {drawn.pixelColor(x, hatched.center().y()).name() for x in range(hatched.left() + 1, hatched.right())}
    assert len(row) >= 2


def test_that_who_waits_for_whom_is_told_in_words(styled: QApplication, qtbot: QtBot) -> None:
    assert rank_bars.headline(timed(None), TITLES) == "The ranks are balanced: none is slower than the others"
    three = msgspec.structs.replace(timed(), ranks=(*timed().ranks, timed().ranks[0]))
    assert "the others wait 23 % of each step for it" in rank_bars.headline(three, (*TITLES, "GPU 3"))
    bars = RankBars()
    qtbot.addWidget(bars)
    bars.show_times(timed(), DEVICES, TITLES)
    said = bars.accessibleDescription()
    assert "Rank 0 · GPU 0: compute 50.0 ms, communication 4.0 ms, waiting 16.0 ms." in said
    assert bars.accessibleName() == "Time of each rank"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [380, 1900])
def test_that_all_parts_are_painted_at_any_width_in_either_scheme(
    view: StrategyView, monkeypatch: pytest.MonkeyPatch, dark: bool, width: int
) -> None:
    monkeypatch.setattr(theme, "is_dark", lambda: dark)
    view.show_data(data(plan(cut=a_cut(devices=DEVICES)), trace(), timed()), NAMES)
    view.resize(width, view.sizeHint().height())
    view.show()
    drawn = view.grab().toImage()
    color = QColor(theme.device_color(DEVICES[0]))
    for part in (view.cut, view.schedule, view.ranks):
        corner = part.mapTo(view, QPoint(0, 0))
        names = {
            drawn.pixelColor(corner.x() + x, corner.y() + y).name()
            for x in range(0, part.width(), 3)
            for y in range(0, part.height(), 3)
        }
        assert color.name() in names, part.accessibleName()


def test_that_an_image_without_a_trace_paints_nothing(styled: QApplication, qtbot: QtBot) -> None:
    made = ScheduleDiagram()
    qtbot.addWidget(made)
    made.resize(300, 60)
    made.show()
    assert made.action_at(QPoint(10, 10)) is None
    qtbot.mouseMove(made, QPoint(10, 10))
    assert not made.grab().isNull()
    assert made.focusPolicy() == Qt.FocusPolicy.NoFocus
