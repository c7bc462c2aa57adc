"""Values of compared runs, and rows of the comparison table."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from engine.contract.catalogue import Measure
from engine.contract.devices import CPU, DeviceSample
from engine.contract.events import ENCODE, AnyEvent, DevicesSampled, Planned, StepMetrics, Validation
from engine.contract.job import FIELDS
from gui import titles
from gui.compare.compared_run import ComparedRun, LogLoader
from gui.compare.comparison import Row, create_rows
from tests.engine.contract.test_options import create_catalogue
from tests.gui.compare.runs import Change, load_run, make_accuracy_change, make_power_change, make_run


def row(table: list[Row], title: str) -> Row:
    return next(each for each in table if each.title == title)


def make_power_log(*values: tuple[float, float | None]) -> bytes:
    """Return log lines with samples of the power of the CPU and of a GPU, which takes twice as much as the CPU.

    `values` are pairs of elapsed seconds and the CPU's power in watts, or None for unknown power.
    """
    events = [
        DevicesSampled(
            n=10_000 + n,
            time=1e9 + when,
            samples=(
                DeviceSample(device=CPU, power_w=watts),
                DeviceSample(device="GPU-1", power_w=watts and 2 * watts),
            ),
        )
        for n, (when, watts) in enumerate(values)
    ]
    return b"".join(ENCODE.encode(event) + b"\n" for event in events)


def start_clock(event: AnyEvent) -> None:
    event.time = 1e9


def test_energy_integrates_power_without_gaps() -> None:
    run = make_run(4, None, start_clock)
    with run.events_file.open("ab") as stream:
        stream.write(
            make_power_log((0, 100.0), (2, 200.0), (3, None), (4, 200.0), (3604, 200.0), (3605, 400.0), (3615, 400.0))
        )
    # 300 J until second 2, 400 J until second 4, a gap of an hour, 300 J in a second, 4000 J in the last ten
    assert load_run(run).energy_wh == pytest.approx(3 * (300 + 400 + 300 + 4000) / 3600)


def test_energy_is_unknown_without_power() -> None:
    run = make_run(4, None, start_clock)
    with run.events_file.open("ab") as stream:
        stream.write(make_power_log((0, 100.0)))
    assert load_run(make_run()).energy_wh is load_run(run).energy_wh is None
    assert row(create_rows([load_run(make_run(change=make_power_change(0.0)))]), "Energy").texts == ("0.00 Wh",)


def test_best_metric_is_best_of_all_validations() -> None:
    accuracies, losses = iter((0.5, 0.9, 0.7, 0.9)), iter((0.2, 0.4, 0.5, 0.3))

    def change(event: AnyEvent) -> None:
        if isinstance(event, Validation):
            event.measures = {"top1": next(accuracies), "loss": next(losses)}

    run = load_run(make_run(40, "completed", change))
    assert run.find_best(Measure("top1", "Top-1 accuracy", higher_is_better=True)) == (0.9, 4)
    assert run.find_best(Measure("loss", "Validation loss", higher_is_better=False)) == (0.2, 1)
    assert run.find_best(Measure("top5", "Top-5 accuracy", higher_is_better=True)) is None


def test_images_per_second_excludes_warm_up() -> None:
    def change(event: AnyEvent) -> None:
        if isinstance(event, StepMetrics):
            event.images_per_second = float(event.step**2)
            event.step *= 100

    for steps, median in ((600, 301**2), (4, 3**2), (2, 2**2)):  # the first log is read in several chunks
        run = load_run(make_run(steps, "completed", change))
        assert run.images_per_second == median
        assert row(create_rows([run]), "Steps").texts[0].startswith(f"{100 * steps:,} of ")


def test_x_of_epochs_has_fractions() -> None:
    run = load_run(make_run(40))
    np.testing.assert_allclose(run.compute_x(run.data.steps, "epoch")[[0, 9, 39]], [0.1, 1.0, 4.0])
    np.testing.assert_allclose(run.compute_x(run.data.validations, "epoch"), [1.0, 2.0, 3.0, 4.0])


def test_loader_discards_results_of_earlier_requests(qtbot: QtBot) -> None:
    parent, read, completed = QObject(), [], []
    loader = LogLoader(parent)
    loader.read.connect(lambda run: read.append((run.series, run.summary.run_id)))
    loader.complete.connect(lambda: completed.append(loader.running))
    first, second = make_run(4), make_run(4)
    loader.start([(0, first), (1, second)])
    for thread in [each for each in threading.enumerate() if each.name == "compared runs"]:  # it may have ended
        thread.join()
    loader.start([(0, second)])
    assert loader.running
    qtbot.waitUntil(lambda: bool(completed))
    assert (read, completed) == ([(0, second.run_id)], [False])
    loader.start([(0, first)])
    loader.close()
    assert "compared runs" not in [thread.name for thread in threading.enumerate()]


def test_rows_mark_best_values() -> None:
    runs = [
        load_run(make_run(40, "completed", make_accuracy_change(0.5, 0.6, 0.7, 0.6))),
        load_run(make_run(40, "completed", make_accuracy_change(0.5, 0.6, 0.8, 0.6)), 1),
        load_run(make_run(40, "completed", make_accuracy_change(0.5, 0.8, 0.7, 0.6)), 2),
    ]
    table = create_rows(runs)
    assert row(table, "Best top-1 accuracy").best == {1, 2}
    assert row(table, "Best top-1 accuracy").texts[1] == "80.00%  (epoch 3)"
    assert row(table, "Best validation loss").best == {1, 2}
    assert row(table, "Speed").best == frozenset()


def test_rows_mark_highest_speed_and_format_energy() -> None:
    def change(event: AnyEvent) -> None:
        make_power_change(60_000.0)(event)
        if isinstance(event, StepMetrics):
            event.images_per_second /= steps

    runs = []
    for steps in (40, 80):
        runs.append(load_run(make_run(steps, "completed", change), len(runs)))
    table = create_rows(runs)
    assert row(table, "Speed").best == {0}
    assert row(table, "Energy").texts == ("50.00 Wh", "117 Wh")


def make_custom_runs(metrics_of_run: tuple[tuple[Measure, ...], ...]) -> list[ComparedRun]:
    """Return a run of a custom task per element of `metrics_of_run`, loaded for the comparison.

    The element contains the metrics that the run's plan declares. Its validations always report the metric recall_5.
    """

    def change(value: float, metrics: tuple[Measure, ...]) -> Change:
        def apply(event: AnyEvent) -> None:
            if isinstance(event, Planned):
                event.metrics = metrics
            elif isinstance(event, Validation):
                event.measures = {"recall_5": value * event.epoch}

        return apply

    return [
        load_run(make_run(task="custom", change=change((index + 1) / 10, metrics)), index)
        for index, metrics in enumerate(metrics_of_run)
    ]


@pytest.mark.parametrize("is_described_by_first", [True, False])
@pytest.mark.parametrize(("is_higher_better", "best"), [(True, {1}), (False, {0})])
def test_rows_mark_best_by_direction_of_custom_metrics(
    is_higher_better: bool, best: set[int], is_described_by_first: bool
) -> None:
    metrics = (Measure("recall_5", "Recall at 5", is_higher_better, percent=True),)
    found = row(create_rows(make_custom_runs((metrics if is_described_by_first else (), metrics))), "Best recall at 5")
    assert found.best == best
    assert found.texts[0] == ("40.00%  (epoch 4)" if is_higher_better else "10.00%  (epoch 1)")


def test_rows_omit_metrics_without_known_direction() -> None:
    assert not any("recall_5" in each.title for each in create_rows(make_custom_runs(((), ()))))


def test_rows_compare_duration_of_completed_runs_only() -> None:
    runs = [
        load_run(make_run(10, "stopped", make_power_change(100.0))),
        load_run(make_run(40, "completed", make_power_change(100.0)), 1),
        load_run(make_run(80, "completed", make_power_change(100.0)), 2),
    ]
    table = create_rows(runs)
    assert row(table, "Duration").best == {1}
    assert row(table, "Energy").best == {1}
    assert row(table, "Steps").texts == ("10 of 8", "40 of 40", "80 of 80")
    assert row(table, "State").texts == ("Stopped", "Completed", "Completed")


def test_rows_show_differing_fields_as_in_form() -> None:
    runs = [
        load_run(make_run(model="resnet18", batch_size=1024, ema_decay=0.999, sync_batchnorm=True, name="a")),
        load_run(make_run(model="vit_b_16", strategy="ddp", devices=("cpu", "cpu"), name="b"), 1),
    ]
    table = create_rows(runs)
    heading = next(index for index, each in enumerate(table) if each.title == "Differences between the jobs")
    values = {each.title: each.texts for each in table[heading + 1 :]}
    assert values == {
        "Model": ("ResNet-18", "ViT-B/16"),
        "Strategy": ("Single device", "DistributedDataParallel"),
        "Devices": ("CPU", "2 CPU workers"),
        "Batch size": ("1,024", "32"),
        "Weight average": ("0.999", "none"),
        "SyncBatchNorm": ("yes", "no"),
    }


def test_rows_show_field_that_differs_in_third_run() -> None:
    changes = ({}, {}, {"batch_size": 64, "dataset": "/data/other", "best_by": "loss"})
    runs = [load_run(make_run(**fields), index) for index, fields in enumerate(changes)]
    table = create_rows(runs)
    assert row(table, "Batch size").texts == ("32", "32", "64")
    assert (row(table, "Batch size").help, row(table, "Batch size").tips) == (FIELDS["batch_size"].help, ("",) * 3)
    assert row(table, "Dataset folder").tips == ("/data/flowers", "/data/flowers", "/data/other")
    assert row(table, FIELDS["best_by"].label).texts[2] == "Validation loss"
    unknown = create_rows([dataclasses.replace(runs[0], job=None), runs[1]])
    assert row(unknown, "Batch size").texts == ("–", "32")


def test_rows_show_differing_options_with_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(titles, "load_catalogue", create_catalogue)
    wide = make_run(model="narrow", options={"width": 64, "gone": 0})
    table = create_rows(
        [load_run(wide), load_run(make_run(model="narrow"), 1), load_run(make_run(model="resnet18"), 2)]
    )
    assert row(table, "Width").texts == ("64", "8", "–")
    assert row(table, "gone").texts == ("0", "–", "–")
    assert [each.title for each in create_rows([load_run(wide), load_run(wide, 1)])][-1] == "The jobs are identical"


def test_rows_ignore_names_of_jobs() -> None:
    table = create_rows([load_run(make_run(name="a")), load_run(make_run(name="b"), 1)])
    assert table[-1].title == "The jobs are identical"
