"""A cut along a bar, and in words."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QColor

from engine.parallel.cut import stages
from gui.cut import cut_format
from gui.cut.geometry import lay_out
from gui.style import fills, theme
from tests.gui.cut.example import a_cut
from tests.gui.sources.devices.snapshots import UUIDS


def test_that_stages_are_as_wide_as_their_time_and_places_stand_where_their_segments_end() -> None:
    bar = lay_out(a_cut())
    assert bar.edges == pytest.approx((0.0, 0.5, 1.0))
    assert [spot.split_point for spot in bar.spots] == ["stem", "block1", "block2", "block3", "block4"]
    assert [spot.at for spot in bar.spots] == pytest.approx([1 / 12, 3 / 12, 6 / 12, 9 / 12, 11 / 12])
    assert bar.seconds == pytest.approx(0.012)


def test_that_a_slower_device_makes_its_stage_wider() -> None:
    cut = a_cut()
    slow = tuple(
        type(each)(
            each.split_point, each.module, each.layers, each.parameters, (each.forward_s[0], 3 * each.forward_s[1]),
            (each.backward_s[0], 3 * each.backward_s[1]), each.activation_bytes, each.output_bytes, each.first_module,
        )
        for each in cut.segments
    )  # fmt: skip
    assert lay_out(a_cut(segments=slow)).edges == pytest.approx((0.0, 0.25, 1.0))


def test_that_the_bar_stands_without_any_measured_time() -> None:
    still = tuple(
        type(each)(each.split_point, each.module, 1, 1, (0.0, 0.0), (0.0, 0.0), 0, 0) for each in a_cut().segments
    )
    assert lay_out(a_cut(segments=still)).edges == pytest.approx((0.0, 0.5, 1.0))


def test_that_the_balance_names_the_slowest_share_and_the_even_one() -> None:
    even, uneven = a_cut(), a_cut(("block3",))
    assert cut_format.balance_words(even, stages(even)) == "All devices take the same time (50 % each)."
    said = cut_format.balance_words(uneven, stages(uneven))
    assert said == "The slowest device takes 75 % of the time; 50 % would be even."


def test_that_two_stages_of_one_device_count_together_in_the_balance() -> None:
    cut = a_cut(("stem", "block2", "block4"), stage_ranks=(0, 1, 1, 0), in_flight=(2, 2, 1, 1))
    # 1 and 1 ms there, 5 and 5 ms here
    assert cut_format.balance_words(cut, stages(cut)).startswith("The slowest device takes 83 %")


def test_that_a_stage_over_its_memory_is_told_so() -> None:
    cut = a_cut(memory_bytes=(50_000, None))
    first = stages(cut)[0]
    assert cut_format.memory_words(first, cut).endswith("over 48.8 KiB")
    assert "exceeds its device's memory" in cut_format.describe_stage(0, stages(cut), cut, "CPU worker 0")
    assert "more than" not in cut_format.describe_stage(1, stages(cut), cut, "CPU worker 1")


def test_that_nothing_travels_between_stages_of_one_device() -> None:
    held = stages(a_cut(("stem", "block2", "block4"), stage_ranks=(0, 1, 1, 0), in_flight=(2, 2, 1, 1)))
    assert [cut_format.sent_words(held, number) for number in range(4)] == ["1.0 KiB", "stays", "5.0 KiB", "–"]


def test_that_cpu_workers_differ_by_pattern_since_they_share_a_colour(styled: object) -> None:
    assert len({fills.hatch(place, "cpu").style() for place in range(8)}) == 8
    assert {fills.hatch(place, UUIDS[place]).style() for place in range(8)} == {fills.hatch(0, "cpu").style()}


@pytest.mark.parametrize("dark", [False, True])
def test_that_texts_on_fills_can_be_read(monkeypatch: pytest.MonkeyPatch, styled: object, dark: bool) -> None:
    monkeypatch.setattr(theme, "is_dark", lambda: dark)
    theme.register_devices(UUIDS)
    for device in (*UUIDS, "cpu"):
        full = QColor(theme.device_color(device))
        light = fills.light(theme.device_color(device))
        assert fills.contrast(light, QColor(theme.colors().text)) >= 4.5, device
        assert fills.contrast(full, fills.text_on(full)) >= 4.5, device
        assert fills.contrast(light, full) >= 1.5, device
