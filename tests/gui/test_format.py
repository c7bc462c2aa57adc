"""Texts for numbers, sizes, durations, times of day, and devices."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from msgspec import structs

from engine.contract.events import Restarting
from engine.runs.folder import RunFolder
from engine.system import format as plain
from gui import format as window_format
from gui.format import clock, format_roughly, size_of
from gui.titles import (
    describe_activity,
    describe_attempt,
    describe_devices,
    describe_job_changes,
    format_job_value,
    format_short_measure,
    rank_titles,
    run_title,
    shorten_title,
    strategy_title,
    title_of,
)
from tests.gui.sources.devices.snapshots import UUIDS
from tests.gui.sources.written_runs import write_run

ROOT = Path(__file__).parents[2]
NOON = 1_700_000_000.0


def test_used_and_total_share_a_unit() -> None:
    assert size_of(41 << 30, 141 << 30) == "41.0 of 141.0 GiB"
    assert size_of(None, 141 << 30) == "– of 141.0 GiB"
    assert size_of(41 << 30, None) == "41.0 GiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (22.4, "22 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (720, "12 min"),
        (5340, "89 min"),
        (5400, "1.5 h"),
        (172_800, "2.0 days"),
    ],
)
def test_format_roughly_rounds_durations(seconds: float, text: str) -> None:
    assert format_roughly(seconds) == text


def test_time_of_another_day_has_a_date() -> None:
    assert len(clock(NOON, NOON)) == len("14:02:31")
    assert clock(NOON, NOON + 86_400) == time.strftime("%d %b ", time.localtime(NOON)) + clock(NOON, NOON)
    now = time.time()
    assert clock(now) == time.strftime("%H:%M:%S", time.localtime(now))
    assert window_format.format_time_or_date(now) == time.strftime("%H:%M", time.localtime(now))
    assert window_format.format_time_or_date(NOON) == time.strftime("%Y-%m-%d", time.localtime(NOON))
    assert window_format.format_date_and_time(NOON) == time.strftime("%Y-%m-%d %H:%M", time.localtime(NOON))


def test_units_change_with_the_magnitude() -> None:
    assert [window_format.energy(joules) for joules in (41_200, 359_900, 360_000)] == [
        "41.2 kJ",
        "359.9 kJ",
        "0.10 kWh",
    ]
    durations = [window_format.milliseconds(seconds) for seconds in (0.00042, 0.001, 0.0315, 0.1, 1.204)]
    assert durations == ["0.42 ms", "1.0 ms", "31.5 ms", "100 ms", "1,204 ms"]


def test_numbers_and_dates_follow_the_region(german: None) -> None:
    assert size_of(41 << 30, 141 << 30) == "41,0 of 141,0 GiB"
    assert window_format.counted(3000, "run") == "3.000 runs"
    assert window_format.throughput(1.2e12) == "1.200,00 GB/s"
    assert window_format.format_date_and_time(NOON) == time.strftime("%d.%m.%y %H:%M", time.localtime(NOON))
    assert clock(NOON, NOON + 86_400) == window_format.format_date_and_time(NOON)
    assert window_format.format_time_or_date(NOON) == time.strftime("%d.%m.%y", time.localtime(NOON))
    with pytest.raises(ZeroDivisionError), window_format.as_in_files():
        1 / 0  # noqa: B018
    assert window_format.localized(0.5, 1) == "0,5"
    # The formats for files and terminals don't change.
    assert plain.counted(3000, "run") == "3,000 runs"
    assert [plain.counted(count, "class") for count in (0, 1, 2)] == ["0 classes", "1 class", "2 classes"]
    assert plain.size(44 << 30) == "44.0 GiB"


def test_sizes_may_be_decimal() -> None:
    window_format.use_decimal_units(True)
    try:
        assert [window_format.size(count) for count in (812, 47_100_000, 2e12)] == ["812 B", "47.1 MB", "2.0 TB"]
        assert size_of(41e9, 141e9) == "41.0 of 141.0 GB"
    finally:
        window_format.use_decimal_units(False)


def test_numbers_are_parsed_in_both_formats(german: None) -> None:
    assert [window_format.number_in(text) for text in ("0,5", "0.5", "1e-3", "-2,5e-4")] == [0.5, 0.5, 0.001, -0.00025]
    for wrong in ("fast", "1.234,5", ""):
        with pytest.raises(ValueError, match="could not convert"):
            window_format.number_in(wrong)
    with window_format.as_in_files():
        assert window_format.localized(1234.5, 1) == "1,234.5"
        with pytest.raises(ValueError, match="could not convert"):
            window_format.number_in("0,5")
    assert window_format.localized(1234.5, 1) == "1.234,5"


def test_only_format_groups_thousands() -> None:
    """Check that only `gui.format` adds thousands separators, because it uses the desktop's number format."""
    for path in (ROOT / "gui").rglob("*.py"):
        grouped = re.findall(r"\{[^{}\n]+:,[.\dg]*f?\}", path.read_text(encoding="utf-8"))
        assert grouped == [] or path == Path(window_format.__file__), path


@pytest.mark.parametrize(
    ("title", "short"),
    [
        ("Top-1 accuracy", "top-1"),
        ("Mean IoU", "mean IoU"),
        ("Validation loss", "validation loss"),
        ("IoU", "IoU"),
        ("F1", "F1"),
        ("mAP", "mAP"),
        ("AP50", "AP50"),
        ("ODS F-measure", "ODS F-measure"),
    ],
)
def test_shorten_title_keeps_abbreviations(title: str, short: str) -> None:
    assert shorten_title(title) == short


def test_metric_has_its_unit() -> None:
    assert format_short_measure("road_extraction", "iou", 0.1038) == "IoU 10.4%"
    assert format_short_measure("classification", "loss", 0.5) == "validation loss 0.5000"


def test_ranks_are_named_by_device_or_worker() -> None:
    assert rank_titles(("cpu",)) == ("CPU",)
    assert rank_titles(("cpu", "cpu")) == ("CPU worker 0", "CPU worker 1")
    assert rank_titles(("ws1:cpu", "cpu", "ws1:cpu")) == ("ws1 CPU worker 0", "CPU", "ws1 CPU worker 2")
    assert rank_titles(UUIDS[:2], {UUIDS[0]: "GPU 3"}) == ("GPU 3", f"{UUIDS[1][:12]}…")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("image_size", None, "model default"),
        ("name", "", "none"),
        ("split_points", (), "automatic"),
        ("cpu_threads", None, "automatic"),
        ("devices", ("cpu", "cpu"), "2 CPU workers"),
        ("", (1, 2), "1, 2"),
        ("dataset", "/data/flowers", "flowers"),
        ("model", "resnet18", "ResNet-18"),
        ("strategy", "auto", "Automatic"),
        ("start", "when_free", "When free"),
        ("", "as it is", "as it is"),
        ("", True, "yes"),
        ("", False, "no"),
        ("", 0, "0"),
        ("batch_size", 1024, "1,024"),
        ("learning_rate", 0.001, "0.001"),
    ],
)
def test_job_values_have_titles(name: str, value: object, text: str) -> None:
    assert format_job_value(name, value) == text


def test_unknown_strategy_has_its_id_as_title() -> None:
    assert strategy_title("unheard-of") == "unheard-of"


def test_job_changes_are_listed() -> None:
    changes = {"augmentation": "light", "sync_batchnorm": True, "gone": False}
    assert describe_job_changes(changes) == "augmentation light, syncBatchNorm on, gone off"


def test_attempt_is_described_by_number_or_changes() -> None:
    attempt = Restarting(cause="It failed.", attempt=1, max_attempts=3)
    assert describe_attempt(attempt) == "attempt 1 of 3"
    changed = structs.replace(attempt, devices=("cpu",), changes={"accumulation": 4})
    assert describe_attempt(changed) == "1 device, gradient accumulation 4"


@pytest.mark.parametrize(("rate", "text"), [(1840.4, "1,840"), (9.96, "10"), (0.312, "0.31")])
def test_slow_speed_keeps_its_digits(rate: float, text: str) -> None:
    assert window_format.speed(rate) == f"{text} images/s"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({"GPU-a": "NVIDIA H200", "GPU-b": "NVIDIA H200"}, "2 × NVIDIA H200"),
        ({"GPU-a": "NVIDIA H200", "GPU-b": "NVIDIA A100"}, "NVIDIA H200, NVIDIA A100"),
        ({"GPU-a": "GPU-a", "GPU-b": "GPU-b"}, "2 GPUs"),
        ({"GPU-a": "NVIDIA H200"}, "2 GPUs"),
        (None, "2 GPUs"),
    ],
)
def test_gpus_are_described_by_name_or_count(names: dict[str, str] | None, text: str) -> None:
    assert describe_devices(("GPU-a", "GPU-b"), names) == text


def test_devices_are_counted_per_machine() -> None:
    devices = ("cpu", "ws1:cpu", "ws1:cpu", "slurm:2:GPU-a", "slurm:2:GPU-b")
    names = dict.fromkeys(("GPU-a", "GPU-b"), "NVIDIA H200")
    assert describe_devices(devices, names) == "CPU, 2 CPU workers on ws1, 2 GPUs on node 2"


def test_run_without_a_name_has_that_of_its_dataset() -> None:
    run = write_run(8)
    assert run_title(structs.replace(run.summary(), dataset="/data/digits/")) == f"digits · {run.run_id[-4:]}"
    assert title_of(run) == f"flowers · {run.run_id[-4:]}"
    assert title_of(RunFolder("/gone/run-1")) == "run-1"


def test_run_in_an_unknown_phase_is_starting() -> None:
    summary = structs.replace(write_run(8).summary(), phase="unheard-of", epoch=None, step=3)
    assert describe_activity(summary) == "starting"
