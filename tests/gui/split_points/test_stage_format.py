"""Positions of the stages in the diagram, and texts about them."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QColor

from gui.split_points.diagram import lay_out
from gui.style import fills, theme
from tests.gui.sources.devices.snapshots import UUIDS
from tests.gui.split_points.example import make_split
from tests.support.contrast import MIN_RATIO, compute_contrast


def test_lay_out_places_stages_and_split_points() -> None:
    bar = lay_out(make_split())
    assert bar.edges == pytest.approx((0.0, 0.5, 1.0))
    assert [spot.split_point for spot in bar.spots] == ["stem", "block1", "block2", "block3", "block4"]
    assert [spot.position for spot in bar.spots] == pytest.approx([1 / 12, 3 / 12, 6 / 12, 9 / 12, 11 / 12])
    assert bar.seconds == pytest.approx(0.012)


def test_lay_out_widens_stage_of_slow_device() -> None:
    split = make_split()
    slow = tuple(
        type(each)(
            each.split_point, each.module, each.layers, each.parameters, (each.forward_s[0], 3 * each.forward_s[1]),
            (each.backward_s[0], 3 * each.backward_s[1]), each.activation_bytes, each.output_bytes, each.first_module,
        )
        for each in split.segments
    )  # fmt: skip
    assert lay_out(make_split(segments=slow)).edges == pytest.approx((0.0, 0.25, 1.0))


def test_lay_out_without_measured_time() -> None:
    untimed = tuple(
        type(each)(each.split_point, each.module, 1, 1, (0.0, 0.0), (0.0, 0.0), 0, 0) for each in make_split().segments
    )
    assert lay_out(make_split(segments=untimed)).edges == pytest.approx((0.0, 0.5, 1.0))


def test_hatch_differs_for_cpu_workers(styled: object) -> None:
    assert len({fills.make_worker_pattern(place, "cpu").style() for place in range(8)}) == 8
    assert {fills.make_worker_pattern(place, UUIDS[place]).style() for place in range(8)} == {
        fills.make_worker_pattern(0, "cpu").style()
    }


def test_blend_mixes_each_channel() -> None:
    assert fills.blend("#ff8000", "#0040c0", 0.25).name() == "#405090"
    assert fills.blend("#ff8000", "#0000ff", 0.25).name() == "#4020bf"


@pytest.mark.parametrize("is_dark", [False, True])
def test_text_on_fills_has_contrast(monkeypatch: pytest.MonkeyPatch, styled: object, is_dark: bool) -> None:
    monkeypatch.setattr(theme, "is_dark", lambda: is_dark)
    theme.register_devices(UUIDS)
    for device in (*UUIDS, "cpu"):
        full = QColor(theme.device_color(device))
        light = fills.lighten(theme.device_color(device))
        assert compute_contrast(light, theme.colors().text) >= MIN_RATIO, device
        assert compute_contrast(full, fills.choose_text_color(full)) >= MIN_RATIO, device
        assert compute_contrast(full, theme.colors().panel) >= 3, device
        assert compute_contrast(light, full) >= 1.5, device


@pytest.mark.parametrize(
    "fill",
    [
        "#000000", "#ff0000", "#0000ff", "#00ff00", "#e00000", "#5577ff", "#6666ff", "#777777", "#757575", "#707070",
        "#ffffff",
    ],
)  # fmt: skip
def test_text_color_is_the_one_with_more_contrast(fill: str) -> None:
    expected = max(("#000000", "#ffffff"), key=lambda text: compute_contrast(text, fill))
    assert fills.choose_text_color(QColor(fill)).name() == expected
