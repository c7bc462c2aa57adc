"""Positions of the stages in the diagram, and texts about them."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QColor

from engine.parallel.split_points import compute_stages
from gui.split_points import stage_format
from gui.split_points.diagram import lay_out
from gui.style import fills, theme
from tests.gui.sources.devices.snapshots import UUIDS
from tests.gui.split_points.example import make_split


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


def test_describe_balance_compares_slowest_with_even() -> None:
    even, uneven = make_split(), make_split(("block3",))
    assert stage_format.describe_balance(even, compute_stages(even)) == "All devices take the same time (50% each)."
    description = stage_format.describe_balance(uneven, compute_stages(uneven))
    assert description == "The slowest device takes 75% of the time; 50% would be even."


def test_describe_balance_adds_stages_of_one_device() -> None:
    split = make_split(("stem", "block2", "block4"), stage_ranks=(0, 1, 1, 0), in_flight=(2, 2, 1, 1))
    # device 0: 1 + 1 ms, device 1: 5 + 5 ms
    assert stage_format.describe_balance(split, compute_stages(split)).startswith("The slowest device takes 83%")


def test_describe_stage_reports_exceeded_memory() -> None:
    split = make_split(memory_bytes=(50_000, None))
    first = compute_stages(split)[0]
    assert stage_format.format_memory(first, split).endswith("over 48.8 KiB")
    assert "exceeds its device's memory" in stage_format.describe_stage(0, compute_stages(split), split, "CPU worker 0")
    assert "exceeds" not in stage_format.describe_stage(1, compute_stages(split), split, "CPU worker 1")


def test_format_transfer_within_a_device() -> None:
    stages = compute_stages(make_split(("stem", "block2", "block4"), stage_ranks=(0, 1, 1, 0), in_flight=(2, 2, 1, 1)))
    assert [stage_format.format_transfer(stages, number) for number in range(4)] == [
        "1.0 KiB",
        "stays",
        "5.0 KiB",
        "–",
    ]


def test_hatch_differs_for_cpu_workers(styled: object) -> None:
    assert len({fills.hatch(place, "cpu").style() for place in range(8)}) == 8
    assert {fills.hatch(place, UUIDS[place]).style() for place in range(8)} == {fills.hatch(0, "cpu").style()}


@pytest.mark.parametrize("is_dark", [False, True])
def test_text_on_fills_has_contrast(monkeypatch: pytest.MonkeyPatch, styled: object, is_dark: bool) -> None:
    monkeypatch.setattr(theme, "is_dark", lambda: is_dark)
    theme.register_devices(UUIDS)
    for device in (*UUIDS, "cpu"):
        full = QColor(theme.device_color(device))
        light = fills.light(theme.device_color(device))
        assert fills.contrast(light, QColor(theme.colors().text)) >= 4.5, device
        assert fills.contrast(full, fills.text_on(full)) >= 4.5, device
        assert fills.contrast(light, full) >= 1.5, device
