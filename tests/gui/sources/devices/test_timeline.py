"""Time series for a day that use limited memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gui.sources.devices.timeline import INITIAL_ROWS, RETENTION_S, Timeline


def make_timeline(rows: int, allowed: int, step_s: float = 1.0) -> Timeline:
    """Return a timeline of `rows` rows with a memory limit of `allowed` rows.

    The column "up" counts the rows, "peak" is 1 in one of 1,000 rows, and "gap" is missing in every third row.
    """
    timeline = Timeline()
    timeline.limit_rows(allowed)
    for n in range(rows):
        timeline.append(
            n * step_s, {"up": float(n), "peak": float(n % 1000 == 500), "gap": None if n % 3 == 0 else 1.0}
        )
    return timeline


def column(timeline: Timeline, key: str) -> np.ndarray:
    found = timeline.column(key)
    assert found is not None
    return found


def test_timeline_retains_one_day() -> None:
    timeline = Timeline()
    for second in range(int(1.5 * RETENTION_S)):
        timeline.append(float(second), {"up": float(second)})
    assert len(timeline) == RETENTION_S + 1
    assert (np.diff(timeline.x) == 1).all()
    assert np.array_equal(column(timeline, "up"), timeline.x)
    assert timeline.allocated_bytes == 12 * INITIAL_ROWS


@given(st.integers(1, 1200), st.integers(64, 400))
def test_timeline_thinning_keeps_budget_and_peaks(rows: int, allowed: int) -> None:
    timeline = make_timeline(rows, allowed)
    assert timeline.allocated_bytes <= (8 + 4 * 3) * allowed
    places, up, peak = timeline.x, column(timeline, "up"), column(timeline, "peak")
    assert (np.diff(places) > 0).all()
    assert (places[0], places[-1]) == (0, rows - 1)
    assert (up.min(), up.max()) == (0, rows - 1)
    assert peak.max() == (rows > 500)
    assert places.flags.c_contiguous
    assert peak.flags.c_contiguous


def test_timeline_keeps_newest_at_full_rate() -> None:
    timeline = make_timeline(5000, 400)
    steps = np.diff(timeline.x)
    assert (steps[-100:] == 1).all()
    assert steps[0] > 10
    # Every peak in the 5000 rows still exists, in the two rows that replaced its section.
    peaks = timeline.x[column(timeline, "peak") == 1]
    for place in range(500, 5000, 1000):
        assert np.abs(peaks - place).min() <= steps.max()


def test_timeline_missing_values_stay_nan() -> None:
    timeline = make_timeline(30, 400)
    assert np.isnan(column(timeline, "gap")).tolist() == [n % 3 == 0 for n in range(30)]
    timeline.append(30.0, {})
    assert np.isnan(column(timeline, "up")[-1])


def test_timeline_column_starts_at_first_number() -> None:
    timeline = Timeline()
    timeline.append(0.0, {"never": None})
    timeline.append(1.0, {"late": 5.0, "never": None})
    assert timeline.column("never") is None
    assert timeline.row_bytes == 8 + 4
    assert np.isnan(column(timeline, "late")).tolist() == [True, False]


def test_timeline_drops_empty_column() -> None:
    timeline = Timeline()
    timeline.append(0.0, {"gone": 1.0, "there": 1.0})
    for n in range(INITIAL_ROWS + 1):
        timeline.append(1.0 + n, {"there": 1.0})
    assert timeline.column("gone") is None
    assert len(column(timeline, "there")) == len(timeline)


def test_timeline_view_survives_move() -> None:
    timeline = make_timeline(63, 64)
    places, up = timeline.x, column(timeline, "up")
    before = places.copy(), up.copy()
    for n in range(63, 500):
        timeline.append(float(n), {"up": float(n)})
    assert np.array_equal(places, before[0])
    assert np.array_equal(up, before[1])


def test_timeline_gap_survives_thinning() -> None:
    timeline = make_timeline(100, 250)
    for n in range(120):
        timeline.append(5000.0 + n, {"up": 1.0})
    assert len(timeline) < 250
    assert timeline.x[1] > 1  # the past has been thinned
    silent = (timeline.x > 200) & (timeline.x < 4900)
    assert silent.sum() >= 8
    assert np.isnan(column(timeline, "up")[silent]).all()


@pytest.mark.parametrize(
    ("step_s", "passed", "empty_rows"), [(1.0, 10.0, 0), (1.0, 12.0, 64), (3.0, 15.0, 0), (3.0, 16.0, 64)]
)
def test_timeline_gap_is_long_for_its_step(step_s: float, passed: float, empty_rows: int) -> None:
    timeline = make_timeline(3, 1000, step_s)
    timeline.append(2 * step_s + passed, {"up": 3.0})
    assert np.isnan(column(timeline, "up")).sum() == len(timeline) - 4 == empty_rows


def test_timeline_slower_sampler_is_no_gap() -> None:
    timeline = make_timeline(10, 1000)
    for n in range(1, 6):
        timeline.append(10.0 + 60 * n, {"up": 1.0})
    assert np.isfinite(column(timeline, "up")[-5:]).all()
    assert np.diff(timeline.x[-4:]).tolist() == [60, 60, 60]


def test_timeline_clock_set_back() -> None:
    timeline = make_timeline(10, 1000)
    view = timeline.x
    for value in (10.0, 11.0):
        timeline.append(-3600.0, {"up": value})
    assert np.diff(timeline.x).tolist() == [1.0] * 11
    assert timeline.x[-1] == -3600
    assert column(timeline, "up").tolist() == list(range(12))
    assert view.tolist() == list(range(10))


def test_timeline_prepends_older_rows_with_gaps() -> None:
    timeline = make_timeline(3, 1000)
    view = timeline.x
    first = float(view[0])
    older = first - np.array([400.0, 390.0, 200.0])
    timeline.prepend(older, {"a": np.array([1.0, 2.0, 3.0], np.float32), "new": np.ones(3, np.float32)}, gap_s=30)
    assert np.all(np.diff(timeline.x) > 0)
    assert timeline.x[-3:].tolist() == view.tolist()
    known = np.isfinite(timeline.column("new"))  # type: ignore[arg-type]
    assert timeline.x[known].tolist() == older.tolist()
    assert timeline.column("new")[known].tolist() == [1.0, 1.0, 1.0]  # type: ignore[index]
    assert known.tolist()[:2] == [True, True]
    assert not known[2]
    timeline.append(float(timeline.x[-1]) + 1, {"a": 9.0})
    assert timeline.column("a")[-1] == 9.0  # type: ignore[index]


def test_timeline_prepends_rows_at_the_longest_distance_without_a_gap() -> None:
    timeline = make_timeline(3, 1000)
    timeline.prepend(np.array([-60.0, -30.0]), {"up": np.array([7.0, 8.0], np.float32)}, gap_s=30)
    assert timeline.x.tolist() == [-60.0, -30.0, 0.0, 1.0, 2.0]
    assert column(timeline, "up").tolist() == [7.0, 8.0, 0.0, 1.0, 2.0]


def test_full_or_empty_timeline_prepends_nothing() -> None:
    empty = Timeline()
    empty.prepend(np.array([1.0]), {"up": np.ones(1, np.float32)}, gap_s=30)
    assert len(empty) == 0
    timeline = make_timeline(63, 64)
    timeline.append(63.0, {"up": 63.0})
    count, first = len(timeline), timeline.x[0]
    timeline.prepend(first - np.arange(70.0, 0.0, -1), {"up": np.arange(70, dtype=np.float32)}, gap_s=30)
    assert (len(timeline), timeline.x[-1]) == (64, 63.0)
    timeline.prepend(timeline.x[0] - np.array([2.0, 1.0]), {"up": np.zeros(2, np.float32)}, gap_s=30)
    assert (len(timeline), column(timeline, "up")[-count:].tolist()) == (64, column(timeline, "up").tolist()[-count:])


def test_timeline_prepends_only_what_fits() -> None:
    timeline = make_timeline(3, 64)
    older = float(timeline.x[0]) - np.arange(200.0, 0.0, -1)
    timeline.prepend(older, {"new": np.arange(200, dtype=np.float32)}, gap_s=30)
    assert len(timeline) == 64
    assert timeline.column("new")[:61].tolist() == list(range(139, 200))  # type: ignore[index]
    assert timeline.x.tolist() == [*older[139:], 0.0, 1.0, 2.0]
