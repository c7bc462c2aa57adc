"""Step times of a run, its bottleneck, and the button that applies advice."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QEvent, QPoint
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QToolTip
from pytestqt.qtbot import QtBot

from engine.contract.events import Advice, TimeSpent
from gui.run.curves.time_spent import BAR_HEIGHT, MEANINGS, ORDER, TimeBar, TimeSpentView, describe_time
from gui.sources.run_data import RunData
from gui.style import fills, theme
from tests.support.contrast import compute_contrast
from tests.support.painted import describe_painting
from tests.support.widgets import OpenWindow

PARTS = {"data": 0.004, "augment": 0.0002, "forward": 0.0018, "backward": 0.0036, "optimizer": 0.0004}
MORE_WORKERS = Advice(sentence="The CPU waits: 2 more would feed it.", field="loader_workers", value=4, live=True)
FINE = Advice(sentence="The CPU is busy 97% of the time; there is no bottleneck.")


def spent(advice: Advice | None = None, **changes: Any) -> TimeSpent:
    return msgspec.structs.replace(TimeSpent(step=8, step_s=0.01, parts=PARTS, advice=advice), **changes)


def data(event: TimeSpent) -> RunData:
    return RunData(time_spent=event)


@pytest.fixture
def bar(styled: QApplication, qtbot: QtBot) -> TimeBar:
    created = TimeBar()
    qtbot.addWidget(created)
    created.resize(600, 80)
    created.show_time(spent())
    created.show()
    return created


@pytest.fixture
def view(styled: QApplication, qtbot: QtBot) -> TimeSpentView:
    created = TimeSpentView()
    qtbot.addWidget(created)
    created.resize(600, 120)
    return created


def test_time_bar_has_proportional_pieces(bar: TimeBar) -> None:
    assert bar.segment("data").width() == pytest.approx(0.4 * bar.width())
    assert bar.segment("augment").left() == pytest.approx(bar.segment("data").right())
    assert bar.segment("optimizer").right() == pytest.approx(bar.width())
    assert bar.segment("communication").width() == 0


def test_time_bar_legend_keeps_known_parts(bar: TimeBar) -> None:
    first = [entry.part for entry in bar.entries()]
    assert first == ["data", "augment", "forward", "backward", "optimizer", None]
    height = bar.height()
    bar.show_time(spent(parts={"forward": 0.01}))
    assert [entry.part for entry in bar.entries()] == first
    assert bar.height() == height
    bar.reset()
    bar.show_time(spent(parts={"forward": 0.01}))
    assert [entry.part for entry in bar.entries()] == ["forward", None]


def test_time_bar_legend_fits_its_width(bar: TimeBar) -> None:
    for width in range(150, 900, 25):
        bar.resize(width, bar.height())
        rects = [entry.rect for entry in bar.entries()]
        assert rects[0].left() == 0
        assert bar.height() == rects[-1].bottom()
        assert not any(one.intersects(other) for one, other in combinations(rects, 2))
        assert len({rect.left() for rect in rects}) == 1 or max(rect.right() for rect in rects) <= width


def test_time_bar_draws_numbers_and_the_hovered_part(bar: TimeBar, qtbot: QtBot) -> None:
    *_, forward, _backward, _optimizer, step = (entry.rect.toRect() for entry in bar.entries())
    entries = [bar.grab(rect).toImage() for rect in (forward, step)]
    bar.show_time(spent(step_s=0.0101))  # the forward pass still takes 18 %
    assert [bar.grab(rect).toImage() == drawn for rect, drawn in zip((forward, step), entries, strict=True)] == [
        True,
        False,
    ]
    assert describe_painting(bar).startswith(
        "“Data wait” muted, “4.0 ms 40%” text, “Augment” muted, “0.20 ms 2.0%” text, "
    )
    before, segment = bar.grab().toImage(), bar.segment("forward").toRect()
    for entry in bar.entries()[:-1]:
        ground, pattern = fills.make_part_fill(entry.part)
        swatch = entry.rect.topLeft().toPoint() + QPoint(6, round(entry.rect.height() / 2) + 2)
        for point in (bar.segment(entry.part).center().toPoint(), swatch):
            assert before.pixelColor(point) in (ground, pattern.color())
    ground, pattern = fills.make_part_fill("data")
    colors = {before.pixelColor(x, BAR_HEIGHT // 2).name() for x in range(bar.width() // 3)}
    assert colors >= {ground.name(), pattern.color().name()}
    assert before.pixelColor(segment.left() + 1, BAR_HEIGHT // 2) != QColor(theme.colors().text)
    qtbot.mouseMove(bar, segment.center())
    qtbot.waitUntil(
        lambda: bar.grab().toImage().pixelColor(segment.left() + 1, BAR_HEIGHT // 2) == QColor(theme.colors().text)
    )
    assert QToolTip.text() == f"Forward 1.8 ms, 18% of each step\n{MEANINGS['forward']}"
    QApplication.sendEvent(bar, QEvent(QEvent.Type.Leave))
    assert bar.grab().toImage() == before


def test_time_bar_legend_has_space_for_seconds(bar: TimeBar) -> None:
    bar.resize(3000, bar.height())
    widths = []
    for step_s in (0.999, 1.0):
        bar.show_time(spent(step_s=step_s))
        widths.append(bar.entries()[0].rect.width())
    assert widths[0] < widths[1]


@pytest.mark.usefixtures("normal_text")
def test_time_bar_legend_grows_with_the_text(bar: TimeBar) -> None:
    theme.choose("system", 200)
    assert all(entry.rect.height() >= bar.fontMetrics().height() for entry in bar.entries())
    assert bar.height() == bar.entries()[-1].rect.bottom()


def test_time_bar_finds_part_at_point(bar: TimeBar) -> None:
    for step_part in ("data", "forward"):
        assert bar.part_at(bar.segment(step_part).center().toPoint()) == step_part
    named = next(entry for entry in bar.entries() if entry.part == "forward")
    assert bar.part_at(named.rect.center().toPoint()) == "forward"
    assert bar.part_at(QPoint(bar.width() // 2, BAR_HEIGHT + 2)) is None


def test_time_bar_describes_parts_by_size(bar: TimeBar) -> None:
    assert bar.accessibleName() == "Time of a step"
    assert bar.accessibleDescription() == describe_time(spent())
    assert describe_time(spent()) == (
        "A step takes 10.0 ms. Data wait 4.0 ms, 40% of each step. Backward 3.6 ms, 36% of each step. "
        "Forward 1.8 ms, 18% of each step. Optimizer 0.40 ms, 4.0% of each step. Augment 0.20 ms, 2.0% of each step."
    )


@pytest.mark.parametrize("is_dark", [False, True])
def test_part_fills_differ_without_color(styled: QApplication, monkeypatch: pytest.MonkeyPatch, is_dark: bool) -> None:
    monkeypatch.setattr(theme, "is_dark", lambda: is_dark)
    fills_by_style: list[tuple[object, QColor]] = []
    for step_part in ORDER:
        ground, pattern = fills.make_part_fill(step_part)
        same_style = [other for style, other in fills_by_style if style == pattern.style()]
        assert all(compute_contrast(ground, other) > 1.25 for other in same_style), step_part
        fills_by_style.append((pattern.style(), ground))
    scheme = theme.colors()
    patterned = {
        "data": scheme.warning, "transfer": scheme.warning, "communication": scheme.error, "augment": scheme.ok,
        "optimizer": scheme.ok, "logging": scheme.muted, "other": scheme.muted,
    }  # fmt: skip
    assert fills.make_part_fill("backward")[0] == QColor(scheme.accent)
    assert fills.make_part_fill("forward")[0] == fills.lighten(scheme.accent)
    for step_part, color in patterned.items():
        ground, pattern = fills.make_part_fill(step_part)
        assert ground == fills.blend(color, scheme.panel, 0.3)
        assert pattern.color() == fills.blend(color, scheme.panel, 0.85)
        assert compute_contrast(pattern.color(), ground) > compute_contrast(ground, scheme.panel)


def test_time_view_is_hidden_without_data(view: TimeSpentView) -> None:
    view.show_data(RunData(), is_active=True)
    assert view.isHidden()
    for advice, sentence in ((None, "Time of each step"), (FINE, FINE.sentence)):
        view.show_data(data(spent(advice)), is_active=True)
        assert not view.isHidden()
        assert view.label.text() == sentence
        assert view.change.isHidden()
    assert view.bar.isHidden()
    view.fold.click()
    assert not view.bar.isHidden()
    view.reset()
    assert view.isHidden()


def test_time_view_requests_workers_for_active_run(view: TimeSpentView, qtbot: QtBot) -> None:
    view.show_data(data(spent(MORE_WORKERS)), is_active=True)
    assert view.change.text() == "Use 4 workers now"
    assert view.change.toolTip() == "Set Loader workers to 4 in this run"
    with qtbot.waitSignal(view.loader_workers_requested) as signal:
        view.change.click()
    assert signal.args == [4]
    assert (view.change.text(), view.change.isEnabled()) == ("Requested", False)
    reworded = msgspec.structs.replace(MORE_WORKERS, sentence="The CPU waits a little less.")
    view.show_data(data(spent(reworded)), is_active=True)
    assert not view.change.isEnabled()
    view.reset()
    view.show_data(data(spent(reworded)), is_active=True)
    assert view.change.isEnabled(), "another run"
    view.change.click()
    view.show_data(data(spent(msgspec.structs.replace(MORE_WORKERS, value=6))), is_active=True)
    assert (view.change.text(), view.change.isEnabled()) == ("Use 6 workers now", True)
    view.show_data(data(spent(FINE)), is_active=True)
    assert view.change.isHidden()


def test_time_view_requests_setting_for_ended_run(view: TimeSpentView, qtbot: QtBot) -> None:
    view.show_data(data(spent(MORE_WORKERS)), is_active=True)
    view.change.click()
    view.show_data(data(spent(MORE_WORKERS)), is_active=False)
    assert (view.change.text(), view.change.isEnabled()) == ("Use next time", True)
    assert view.change.toolTip() == "Set Loader workers to 4 in the form"
    with qtbot.waitSignal(view.setting_requested) as signal:
        view.change.click()
    assert signal.args == ["loader_workers", 4]
    assert view.change.text() == "Set for the next run"
    view.reset()
    view.show_data(data(spent()), is_active=False)
    assert (view.label.text(), view.change.isHidden()) == ("Time of each step", True)


def test_time_view_has_no_button_for_unknown_field(view: TimeSpentView) -> None:
    view.show_data(data(spent(Advice(sentence="Turn it up.", field="warp", value=9))), is_active=True)
    assert view.label.text() == "Turn it up."
    assert view.change.isHidden()


def test_window_puts_advised_setting_into_form(open_window: OpenWindow) -> None:
    window = open_window()
    window.workspace.run.setting_requested.emit("loader_workers", 7)
    assert window.form.field_value("loader_workers") == 7
    assert "Loader workers" in window.message.text()
    window.workspace.run.setting_requested.emit("precision", "bf16")
    assert window.form.values()["precision"] == "bf16"
