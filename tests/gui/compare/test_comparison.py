"""What is reckoned from a run's log, and what the table says of several."""

from __future__ import annotations

import numpy as np
import pytest

from engine.contract.devices import CPU, DeviceSample
from engine.contract.events import ENCODE, AnyEvent, DevicesSampled
from gui import titles
from gui.compare.comparison import Row, rows
from tests.engine.contract.test_options import catalogue
from tests.gui.compare.runs import at, compared, drawing, run_of, validating


def row(table: list[Row], title: str) -> Row:
    return next(each for each in table if each.title == title)


def samples(*told: tuple[float, float | None]) -> bytes:
    """Lines of samples of the CPU, by seconds since the start and watts."""
    events = [
        DevicesSampled(n=10_000 + n, time=1e9 + when, samples=(DeviceSample(device=CPU, power_w=watts),))
        for n, (when, watts) in enumerate(told)
    ]
    return b"".join(ENCODE.encode(event) + b"\n" for event in events)


def begun_at(event: AnyEvent) -> None:
    event.time = 1e9


def test_that_energy_is_the_integral_of_power_without_the_time_nobody_looked() -> None:
    run = run_of(4, None, begun_at)
    with run.events_file.open("ab") as stream:
        stream.write(samples((0, 100.0), (2, 200.0), (3, None), (4, 200.0), (3604, 200.0), (3605, 400.0)))
    # 300 J to the second 2, 400 J to the second 4, an hour of standing still, 300 J in the last second
    assert compared(run).energy_wh == pytest.approx((300 + 400 + 300) / 3600)


def test_that_energy_is_not_known_where_no_device_tells_its_power() -> None:
    assert compared(run_of()).energy_wh is None


def test_that_the_best_measure_is_the_best_of_all_validations() -> None:
    run = compared(run_of(40, "completed", validating(0.5, 0.9, 0.7, 0.6)))
    assert run.best("top1") == (0.9, 2)
    assert run.best("loss") == (pytest.approx(0.1), 2)
    assert run.best("top5") is None


def test_that_images_per_second_do_not_count_the_warming_up() -> None:
    assert compared(run_of(40, "completed", at(500.0))).images_per_second == 500.0
    assert compared(run_of(4, "completed", at(500.0))).images_per_second == 500.0
    assert compared(run_of(2, "completed", at(500.0))).images_per_second == 500.0


def test_that_epochs_have_fractions() -> None:
    run = compared(run_of(40))
    np.testing.assert_allclose(run.x(run.data.steps, "epoch")[[0, 9, 39]], [0.1, 1.0, 4.0])
    np.testing.assert_allclose(run.x(run.data.validations, "epoch"), [1.0, 2.0, 3.0, 4.0])


def test_that_the_best_of_each_row_is_marked() -> None:
    runs = [
        compared(run_of(40, "completed", validating(0.5, 0.6, 0.7, 0.6))),
        compared(run_of(40, "completed", validating(0.5, 0.6, 0.8, 0.6)), 1),
        compared(run_of(40, "completed", validating(0.5, 0.8, 0.7, 0.6)), 2),
    ]
    table = rows(runs)
    assert row(table, "Best top-1 accuracy").best == {1, 2}
    assert row(table, "Best top-1 accuracy").texts[1] == "80.00 %  (epoch 3)"
    assert row(table, "Best validation loss").best == {1, 2}
    assert row(table, "Images per second").best == frozenset(), "all are the same"


def test_that_only_runs_that_completed_can_have_been_the_shortest() -> None:
    runs = [
        compared(run_of(10, "stopped", drawing(100.0))),
        compared(run_of(40, "completed", drawing(100.0)), 1),
        compared(run_of(80, "completed", drawing(100.0)), 2),
    ]
    table = rows(runs)
    assert row(table, "Duration").best == {1}
    assert row(table, "Energy").best == {1}
    assert row(table, "State").texts == ("Stopped", "Completed", "Completed")


def test_that_only_fields_that_differ_are_told_by_their_labels_and_in_words() -> None:
    runs = [
        compared(run_of(model="resnet18", batch_size=1024, ema_decay=0.999, sync_batchnorm=True, name="a")),
        compared(run_of(model="vit_b_16", strategy="ddp", devices=("cpu", "cpu"), name="b"), 1),
    ]
    table = rows(runs)
    heading = next(place for place, each in enumerate(table) if each.title == "Differences between the jobs")
    told = {each.title: each.texts for each in table[heading + 1 :]}
    assert told == {
        "Model": ("ResNet-18", "ViT-B/16"),
        "Strategy": ("Single device", "DistributedDataParallel"),
        "Devices": ("CPU", "2 CPU workers"),
        "Batch size": ("1,024", "32"),
        "Weight average": ("0.999", "none"),
        "SyncBatchNorm": ("yes", "no"),
    }


def test_that_a_field_differs_where_only_the_third_run_s_does() -> None:
    table = rows([compared(run_of(batch_size=size), place) for place, size in enumerate((32, 32, 64))])
    assert row(table, "Batch size").texts == ("32", "32", "64")


def test_that_options_differ_by_their_labels_even_where_one_is_at_its_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(titles, "load_catalogue", catalogue)
    wide = run_of(model="narrow", options={"width": 64, "gone": "a"})
    table = rows([compared(wide), compared(run_of(model="narrow"), 1), compared(run_of(model="resnet18"), 2)])
    assert row(table, "Width").texts == ("64", "8", "–")
    assert row(table, "gone").texts == ("a", "–", "–")
    assert [each.title for each in rows([compared(wide), compared(wide, 1)])][-1] == "The jobs are identical"


def test_that_jobs_that_are_alike_but_for_their_names_are_the_same() -> None:
    table = rows([compared(run_of(name="a")), compared(run_of(name="b"), 1)])
    assert table[-1].title == "The jobs are identical"
