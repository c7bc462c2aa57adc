"""View of a strategy's measurements: stages, pipeline schedule and time per rank."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest
from PySide6.QtCore import QPoint, QRect
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QApplication, QToolTip
from pytestqt.qtbot import QtBot

from engine.contract.events import Action, AnyEvent, Planned, RanksTimed, RankTimes, RunStarted, StepMetrics, TimeSpent
from engine.runs.folder import RunFolder, create_run
from gui.run.page import RunPage
from gui.run.strategy import schedule
from gui.run.strategy.schedule import ScheduleDiagram
from gui.run.strategy.view import RankBars, StrategyView, make_ranks_headline
from gui.sources.run_data import RunData
from gui.style import fills, theme
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot
from tests.gui.sources.written_runs import (
    append_events,
    job,
    list_run_events,
    make_plan,
    supervise_here,
    write,
    write_run,
)
from tests.gui.split_points.example import SPLIT_POINTS, make_split, make_step_times, make_trace
from tests.support.painted import describe_painting
from tests.support.run_data import make_run_data
from tests.support.widgets import ShowWidget

DEVICES = UUIDS[:2]
NAMES = {UUIDS[0]: "GPU 0", UUIDS[1]: "GPU 2"}
TITLES = ("GPU 0", "GPU 2")


def data(*events: AnyEvent) -> RunData:
    started = RunStarted(
        run_id="a-run", job=job(strategy="pipeline", devices=DEVICES), devices=(), world_size=2, environment={},
        supervisor_pid=1,
    )  # fmt: skip
    return make_run_data([started, *events])


@pytest.fixture
def diagram(styled: QApplication, qtbot: QtBot) -> ScheduleDiagram:
    created = ScheduleDiagram()
    qtbot.addWidget(created)
    created.resize(900, 200)
    created.show_trace(make_trace(), DEVICES, TITLES)
    created.show()
    return created


@pytest.fixture
def bars(styled: QApplication, qtbot: QtBot) -> RankBars:
    bars = RankBars()
    qtbot.addWidget(bars)
    bars.resize(900, 120)
    bars.show_times(make_step_times(), DEVICES, TITLES)
    return bars


@pytest.fixture
def view(styled: QApplication, qtbot: QtBot) -> StrategyView:
    created = StrategyView()
    qtbot.addWidget(created)
    created.resize(900, 500)
    return created


def test_strategy_view_is_hidden_without_data(view: StrategyView) -> None:
    view.show_data(data(make_plan()), NAMES)
    assert view.isHidden()


def test_strategy_view_shows_available_parts(view: StrategyView) -> None:
    view.show_data(data(make_plan(model_split=make_split(devices=DEVICES))), NAMES)
    assert view.headline("stages") == "Split into 2 stages. All devices take the same time (50% each)."
    assert [view.stages.isVisibleTo(view), view.schedule.isVisibleTo(view), view.ranks.isVisibleTo(view)] == [
        True, False, False,
    ]  # fmt: skip
    split = make_split(SPLIT_POINTS[:3], DEVICES, stage_ranks=(0, 1, 0, 1), in_flight=(4, 3, 2, 1))
    measured = data(make_plan(model_split=split), make_trace(), make_step_times())
    view.show_data(measured, NAMES)
    assert re.match("Split into 4 stages. .*50%", view.headline("stages"))
    view.show_data(measured, {DEVICES[0]: "GPU 7"})
    for diagram in (view.stages, view.schedule, view.ranks):
        assert "GPU 7" in diagram.accessibleDescription()
    assert view.maximumHeight() == view.sizeHint().height()
    view.reset()
    view.show_data(measured, {DEVICES[0]: "GPU 7"})
    assert view.headline("stages").startswith("Split into 4 stages. ")
    view.show_data(measured, NAMES)
    assert view.headline("schedule") == "Bubble 33% measured, 11% in theory (1F1B, 2 microbatches), step 40"
    assert view.headline("ranks") == ("Rank 1 (GPU 2) is the slowest: the other waits 23% of each step for it, step 40")
    replicas = data(make_trace(), make_step_times())
    assert replicas.started is not None
    replicas.started.job = replicas.started.job.with_fields(devices=UUIDS[:4])
    view.show_data(replicas, {device: f"GPU {number}" for number, device in enumerate(UUIDS)})
    for diagram in (view.schedule, view.ranks):
        assert "Rank 1 · GPU 1" in diagram.accessibleDescription()
    view.reset()
    assert view.isHidden()
    view.show_data(data(make_plan(model_split=make_split(("of another version",), DEVICES))), NAMES)
    assert view.isHidden()


def find_block(diagram: ScheduleDiagram, action: Action) -> QRect:
    """Return the rectangle of an action's block, found by asking the diagram for the action at each point."""
    points = (QPoint(x, y) for y in range(0, diagram.height(), 10) for x in range(diagram.width()))
    found = [point for point in points if diagram.action_at(point) == action]
    return QRect(found[0], found[-1])


def test_schedule_blocks_are_placed_by_time(diagram: ScheduleDiagram) -> None:
    first, second, backward = (find_block(diagram, action) for action in make_trace().ranks[0][:3])
    assert second.left() == pytest.approx(first.right(), abs=1)
    assert backward.left() - second.right() == pytest.approx(2 * second.width(), abs=4)
    drawn = diagram.grab().toImage()
    for device, actions in zip(DEVICES, make_trace().ranks, strict=True):
        corners = [find_block(diagram, actions[index]).topLeft() + QPoint(3, 2) for index in (0, -1)]
        colors = [fills.lighten(theme.device_color(device)).name(), theme.device_color(device)]  # of F and B
        assert [drawn.pixelColor(corner).name() for corner in corners] == colors
    first_rank, second_rank = make_trace().ranks
    for action, is_hatched in ((first_rank[2], False), (second_rank[2], True)):
        corner = find_block(diagram, action).topLeft() + QPoint(2, 2)
        assert (len({drawn.pixelColor(corner + QPoint(x, 0)).name() for x in range(10)}) > 1) is is_hatched
    grid, between_rows = QColor(theme.colors().grid), schedule.LANE + schedule.GAP // 2
    lines = [x for x in range(drawn.width()) if drawn.pixelColor(x, between_rows) == grid]
    per_tick = 2 * (second.left() - first.left())  # 20 ms
    assert lines == pytest.approx([first.left() + count * per_tick for count in range(5)], abs=4)
    diagram.show_trace(make_trace(), DEVICES, ("a title that is much wider than a third of the diagram" * 3,) * 2)
    assert find_block(diagram, make_trace().ranks[0][0]).left() == pytest.approx(diagram.width() / 3, abs=1)


def test_schedule_blocks_have_the_number_of_their_microbatch(diagram: ScheduleDiagram) -> None:
    first, second = make_trace().ranks
    backward = diagram.grab(find_block(diagram, first[2]).adjusted(2, 2, -2, -2)).toImage()
    drawn = {backward.pixelColor(x, y).lightness() for x in range(backward.width()) for y in range(backward.height())}
    fill = QColor(theme.device_color(DEVICES[0]))
    number = fills.choose_text_color(fill).lightness()
    assert min(abs(lightness - number) for lightness in drawn) < abs(fill.lightness() - number) / 2
    block, drawings = find_block(diagram, first[1]).adjusted(2, 2, -2, -2), []
    for microbatch in (1, 1, 7):
        changed = Action("F", 0, microbatch, 0.01, 0.02)
        diagram.show_trace(make_trace(ranks=((first[0], changed, *first[2:]), second)), DEVICES, TITLES)
        drawings.append(diagram.grab(block).toImage())
    assert drawings[0] == drawings[1] != drawings[2]


def test_schedule_explains_the_kinds_that_occur(diagram: ScheduleDiagram) -> None:
    ends = []
    for kinds in ("F", "FB", "FBI"):
        actions = tuple(Action(kind, 0, 0, n / 100, n / 100 + 0.01) for n, kind in enumerate(kinds))  # type: ignore[arg-type]
        diagram.show_trace(make_trace(ranks=(actions, actions)), DEVICES, TITLES)
        drawn = diagram.grab().toImage()
        legend = range(diagram.height() - schedule.LEGEND_HEIGHT + 6, diagram.height() - 4)
        blank = drawn.pixelColor(drawn.width() - 2, legend[0])
        ends.append(max(x for x in range(drawn.width()) if any(drawn.pixelColor(x, y) != blank for y in legend)))
    assert ends == sorted(set(ends))


def test_schedule_finds_actions_in_any_order(diagram: ScheduleDiagram) -> None:
    ranks = tuple(actions[::-1] for actions in make_trace().ranks)
    diagram.show_trace(make_trace(ranks=ranks), DEVICES, TITLES)
    lefts = [find_block(diagram, action).left() for action in make_trace().ranks[0]]
    assert lefts == sorted(lefts)


def test_schedule_finds_action_at_point(diagram: ScheduleDiagram, qtbot: QtBot) -> None:
    action = make_trace().ranks[1][2]
    point = find_block(diagram, action).center()
    assert diagram.action_at(point) == action
    qtbot.mouseMove(diagram, point)
    qtbot.waitUntil(lambda: QToolTip.text() == schedule.describe_action(action))
    qtbot.mouseMove(diagram, QPoint(2, 2))
    qtbot.waitUntil(lambda: not QToolTip.isVisible(), timeout=5000)  # it would expire after 10 s
    assert schedule.describe_action(action) == (
        "Backward for weights, microbatch 0, stage 1: 10.0 ms (from 30.0 ms to 40.0 ms)"
    )
    assert diagram.action_at(QPoint(2, 2)) is None
    before_gap = find_block(diagram, make_trace().ranks[0][1])
    assert diagram.action_at(QPoint(before_gap.right() + 20, point.y() - 30)) is None
    assert diagram.action_at(QPoint(before_gap.center().x(), schedule.LANE)) is None, "between the rows"


def test_schedule_has_a_lane_per_stage(diagram: ScheduleDiagram) -> None:
    lanes = [tuple(Action("F", stage, 0, stage / 100, stage / 100 + 0.01) for stage in range(5)) for _ in DEVICES]
    height = diagram.height()
    diagram.show_trace(make_trace(ranks=(lanes[0], make_trace().ranks[1]), schedule="zbv"), DEVICES, TITLES)
    assert diagram.height() == height + 4 * schedule.LANE
    tops = [find_block(diagram, action).top() for action in lanes[0]]
    assert tops == sorted(set(tops))
    drawn = diagram.grab().toImage()
    assert {drawn.pixelColor(drawn.width() - 4, top).name() for top in tops} == {theme.colors().raised}
    diagram.show_trace(make_trace(ranks=tuple(lanes), schedule="zbv"), DEVICES, TITLES)
    assert diagram.height() == height - 2 * schedule.LANE + 10 * schedule.CROWDED_LANE


@pytest.mark.usefixtures("normal_text")
def test_schedule_is_drawn_again_after_changes(show_widget: ShowWidget) -> None:
    traced, reordered = make_trace(), make_trace(ranks=make_trace().ranks[::-1])
    diagram = show_widget(ScheduleDiagram(), 900, 200)
    diagram.show_trace(traced, DEVICES, TITLES)
    legend_area = QRect(0, diagram.height() - schedule.LEGEND_HEIGHT, diagram.width(), schedule.LEGEND_HEIGHT)
    legend = diagram.grab(legend_area).toImage()
    diagram.show_trace(reordered, DEVICES, TITLES)
    assert diagram.grab(legend_area).toImage() == legend
    for change, titles in (
        (lambda diagram: diagram.resize(500, diagram.height()), TITLES),
        (lambda _diagram: theme.choose("dark", 100), TITLES),
        (lambda diagram: diagram.show_trace(reordered, DEVICES, TITLES[::-1]), TITLES[::-1]),
    ):
        before = diagram.grab().toImage()
        change(diagram)
        fresh = show_widget(ScheduleDiagram(), diagram.width(), diagram.height())
        fresh.show_trace(reordered, DEVICES, titles)
        assert diagram.grab().toImage() == fresh.grab().toImage() != before


def test_schedule_is_sharp_on_a_screen_with_a_high_resolution(
    diagram: ScheduleDiagram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagram, "devicePixelRatioF", lambda: 2.0)
    diagram.recolor()
    drawn = QImage(diagram.size() * 2, QImage.Format.Format_RGB32)
    drawn.setDevicePixelRatio(2.0)
    diagram.render(drawn)
    legend = range(drawn.height() - 2 * schedule.LEGEND_HEIGHT, drawn.height())
    assert any(drawn.pixel(x, y) != drawn.pixel(x + 1, y) for y in legend for x in range(0, drawn.width(), 2))


def test_schedule_describes_each_rank(diagram: ScheduleDiagram) -> None:
    description = diagram.accessibleDescription()
    assert description.startswith("Bubble 33% measured, 11% in theory (1F1B, 2 microbatches). Step 40 took 90.0 ms.")
    assert "Rank 0 · GPU 0: 4 actions, 60.0 ms busy, 33% idle. Rank 1 · GPU 2: " in description
    assert diagram.accessibleName() == "Schedule of the pipeline"
    one = make_trace(ranks=((Action("F", 0, 0, 0.0, 0.0),),), span_s=0.0)
    assert schedule.headline(one) == "Bubble 33% measured, 11% in theory (whole batches)"
    assert schedule.describe_trace(one, ()).endswith("Rank 0: 1 actions, 0.00 ms busy, 0% idle.")


def make_rank_times(*seconds: tuple[float, float, float], straggler: int | None) -> RanksTimed:
    """Return the times of ranks at a step: seconds of computing, communication and waiting for each rank.

    `straggler` is the rank that the others wait for, or None if no rank stands out.
    """
    times = (RankTimes(compute_s=a, communication_s=b, waiting_s=c) for a, b, c in seconds)
    return RanksTimed(step=40, ranks=tuple(times), straggler=straggler)


def test_rank_bars_share_one_scale(bars: RankBars) -> None:
    bars.show_times(make_rank_times((0.05, 0.004, 0.016), (0.066, 0.008, 0.066), straggler=1), DEVICES, TITLES)
    compute, communication, waiting = bars.bar(0)
    assert compute.width() / communication.width() == pytest.approx(50 / 4)
    assert waiting.left() == pytest.approx(communication.right())
    assert (waiting.right() - compute.left()) / (bars.bar(1)[2].right() - compute.left()) == pytest.approx(0.5)
    assert compute.width() / bars.bar(1)[0].width() == pytest.approx(50 / 66)
    assert bars.bar(1)[2].right() < bars.width() - 3 * 64, "columns with numbers"
    painting = describe_painting(bars)
    assert painting.startswith("“compute” muted, “communication” muted, “waiting” muted, “ms per step” muted, ")
    assert "“50.0” text, “4.0” text, “16.0” text" in painting
    bars.resize(500, 120)
    assert describe_painting(bars).startswith("“compute” muted, “communication” muted, “waiting” muted, “")
    assert "ms per step" not in describe_painting(bars)
    color = fills.choose_text_color(QColor(theme.device_color(DEVICES[0]))).name()
    number = f"“50.0” {'panel' if color == theme.colors().panel else color}"
    assert [text in describe_painting(bars) for text in (number, "“4.0”", "“16.0”")] == [True, False, True]
    assert bars.bar(1)[2].right() == pytest.approx(bars.width(), abs=3)
    legend = bars.grab(QRect(0, 0, bars.width(), 20)).toImage()
    blank = legend.pixelColor(bars.width() - 1, 0)
    columns = "".join(".#"[any(legend.pixelColor(x, y) != blank for y in range(20))] for x in range(bars.width()))
    gaps = sorted(len(gap) for gap in re.findall(r"#(\.+)(?=#)", columns))
    assert 10 < gaps[-2] <= gaps[-1] < 20, "between the entries"
    left = bars.bar(0)[0].left()
    bars.show_times(make_step_times(), DEVICES, (200 * "x",) * 2)
    assert left < bars.bar(0)[0].left() == bars.width() // 3


def test_rank_bars_draw_devices_and_slowest_rank(bars: RankBars) -> None:
    titles: dict[int | None, list[QImage]] = {}
    for straggler in (None, 0, 1):
        bars.show_times(
            make_rank_times((0.05, 0.004, 0.016), (0.05, 0.004, 0.016), straggler=straggler), DEVICES, TITLES
        )
        rows = [QRect(0, int(bars.bar(rank)[0].top()), int(bars.bar(rank)[0].left()) - 4, 20) for rank in (0, 1)]
        titles[straggler] = [bars.grab(row).toImage() for row in rows]
    drawn = bars.grab().toImage()
    for rank, device in enumerate(DEVICES):
        compute, _communication, waiting = (rect.center().toPoint() for rect in bars.bar(rank))
        assert drawn.pixelColor(compute).name() == theme.device_color(device)
        assert drawn.pixelColor(waiting).name() == theme.colors().raised
        hatched = {drawn.pixelColor(_communication + QPoint(x, y)).name() for x in range(-3, 4) for y in range(-3, 4)}
        panel = theme.colors().panel
        assert hatched == {fills.blend(theme.device_color(device), panel, opacity).name() for opacity in (0.2, 0.75)}
        is_bold = [titles[straggler][rank] != titles[None][rank] for straggler in (0, 1)]
        assert is_bold == [rank == 0, rank == 1]


@pytest.mark.parametrize(
    ("times", "headline"),
    [
        (make_step_times(None), "The ranks are balanced"),
        (make_step_times(), "Rank 1 (GPU 2) is the slowest: the other waits 23% of each step for it"),
        (
            make_rank_times((1, 0, 0), (0.5, 0.3, 0.2), (0.9, 0, 0.1), (0.0, 0.0, 0.0), straggler=0),
            "Rank 0 (GPU 0) is the slowest: the others wait 15% of each step for it",
        ),
    ],
)
def test_rank_bars_headline_names_slowest_rank(times: RanksTimed, headline: str) -> None:
    assert make_ranks_headline(times, TITLES) == headline


def test_rank_bars_describe_each_rank(bars: RankBars) -> None:
    description = bars.accessibleDescription()
    assert "Rank 0 · GPU 0: compute 50.0 ms, communication 4.0 ms, waiting 16.0 ms." in description
    assert len(bars.toolTip().splitlines()) == 4  # the headline, the step, and the ranks
    height = bars.height()
    bars.show_times(make_rank_times(*[(0.05, 0.01, 0.01)] * 4, straggler=None), DEVICES * 2, TITLES * 2)
    assert bars.accessibleDescription() != description
    assert bars.bar(3)[0].bottom() <= bars.height() == height + 2 * (bars.bar(3)[0].top() - bars.bar(2)[0].top())


def make_run(extra: AnyEvent, **plan: object) -> RunFolder:
    """Create a run on two GPUs that logs the event `extra` after its tenth step.

    `plan` overrides fields of its plan.
    """
    chosen = job(strategy="pipeline", devices=UUIDS[:2])
    run = create_run(chosen)
    events: list[AnyEvent] = []
    for event in list_run_events(chosen, 40, "completed"):
        events.append(msgspec.structs.replace(event, **plan) if isinstance(event, Planned) else event)
        if isinstance(event, StepMetrics) and event.step == 10:
            events.append(msgspec.structs.replace(extra, time=event.time))
    write(run.events_file, events)
    return run


def test_page_shows_strategy_between_curves_and_log(
    page: RunPage, show: Callable[[RunFolder], RunPage], qtbot: QtBot
) -> None:
    page.set_machine(snapshot(gpu(0), gpu(1)))
    page.name_devices(dict.fromkeys(UUIDS, "elsewhere"))
    show(make_run(make_trace(), model_split=make_split(devices=UUIDS[:2])))
    assert page.strategy.isVisible()
    assert page.charts is not None
    heights = [widget.mapTo(page, widget.rect().topLeft()).y() for widget in (page.charts, page.strategy, page.log)]
    assert heights == sorted(heights)
    assert "Rank 1 · GPU 0" in page.strategy.schedule.accessibleDescription()
    page.resize(1000, 2600)
    QApplication.processEvents()
    log_height = page.log.height()
    show(make_run(make_trace()))  # without a split, the strategy needs less height

    def find_gap() -> int:
        bottom = page.strategy.mapTo(page, page.strategy.rect().bottomLeft())
        return page.log.mapTo(page, QPoint()).y() - bottom.y()

    qtbot.waitUntil(lambda: find_gap() < 20)
    assert page.log.height() == pytest.approx(log_height, abs=2)


@pytest.mark.parametrize("is_other", [False, True], ids=["another execution", "another run"])
def test_page_hides_strategy_of_other_workers(
    page: RunPage, show: Callable[[RunFolder], RunPage], qtbot: QtBot, is_other: bool
) -> None:
    run = make_run(make_trace(), model_split=make_split(devices=UUIDS[:2]))
    append_events(run, TimeSpent(step=40, step_s=0.01, parts={"forward": 0.01}))
    show(run)
    assert (page.strategy.isVisible(), page.advice.time.isVisible()) == (True, True)
    if is_other:
        show(write_run(40))
    else:
        append_events(supervise_here(run, execution=2), *list_run_events(job(), 40, None, execution=2))
    qtbot.waitUntil(lambda: not page.strategy.isVisible())
    assert page.advice.time.isHidden()
