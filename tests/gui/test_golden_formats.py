"""Texts about results and states, made from values that differ pairwise, compared with a golden file.

    FOOTPLATE_WRITE_TEXTS=1 pytest -n 0 tests/gui/test_golden_formats.py

writes the file again. Review its diff.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from PySide6.QtCore import QCoreApplication, QEvent, QModelIndex, Qt
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLabel, QWidget

from engine.contract.advice import Advice, AdviceProgress, Candidate, JobTime, SkippedCandidates
from engine.contract.dataset import ImageSizes, SplitReport, UnreadableImage
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.contract.problems import Choice, Problem
from engine.runs.folder import RunSummary, State
from engine.runs.notices import NoticeSent, NoticeSettings
from gui.advice import advice_format
from gui.advice.answer_view import AnswerView
from gui.advice.table import COLUMNS
from gui.alerts.run_notifications import describe_deliveries, describe_settings
from gui.dataset import dataset_format
from gui.dataset.class_balance import ClassBalance
from gui.dataset.page import DatasetPage
from gui.devices.panel import DevicesPanel
from gui.devices.rows import CpuRow, DeviceRow
from gui.monitor.processes.model import GPU_MEMORY, SORT_ROLE, ProcessModel, ProcessRows
from gui.monitor.processes.process_rows import ProcessRow
from gui.runs.actions import RunActions
from gui.runs.details import Details
from gui.runs.interrupted import InterruptedRuns
from gui.runs.table import RunsModel
from gui.sources.devices.history import DeviceHistory
from gui.split_points.view import SplitPointsView
from tests.gui.sources.devices.snapshots import UUIDS, gpu, held_by, snapshot
from tests.gui.split_points.example import make_split
from tests.support.golden import check_section
from tests.support.unclear_dataset import UNCERTAIN, UNCLEAR

GOLDEN = Path(__file__).with_name("golden_formats.txt")

TIME = JobTime(
    total_s=5000,
    start_s=20,
    epochs=5,
    steps=1200,
    step_s=0.0123,
    validation_s=3,
    measured=("step",),
    estimated=("start",),
)
MEASURED = Candidate(
    name="DDP", strategy="ddp", devices=(CPU, CPU), state="measured", images_per_second=1234, low=1214, high=1254,
    timed_steps=40, data_wait_share=0.25, memory_bytes=2 << 30, estimated_bytes=3 << 30, limit_bytes=4 << 30,
    efficiency=0.93, joules_per_thousand_images=12_400, time=TIME,
    changes={"strategy": "ddp", "devices": (CPU, CPU), "microbatches": None, "accumulation": 2, "precision": "bf16"},
)  # fmt: skip
REQUESTED = Candidate(
    name="One", strategy="single", devices=(CPU,), changes={}, is_requested=True, state="slower", images_per_second=8.44,
    estimated_bytes=1 << 30, joules_per_thousand_images=644, time=structs.replace(TIME, total_s=70, estimated=()),
)  # fmt: skip
FAILED = Candidate(
    name="FSDP", strategy="fsdp", devices=(), changes={"split_points": ()}, state="too_large", why="Memory ran out."
)
ADVICE = Advice(
    table=(MEASURED, REQUESTED), fits=True, sentence="DDP is fastest.", remedies=("Buy memory.",), considered=9,
    what_would_change=("A smaller batch.",), left_out=(SkippedCandidates("rules", tuple("abcdefghij"), "They can't run."),),
    ended_by="settled", confidence=0.95, took_s=40, measured_at=1.8e9, hardware=("H200", "a CPU"),
    versions={"torch": "2.9"}, memory_by="fake_tensors",
)  # fmt: skip


def join_visible_texts(page: QWidget) -> str:
    """Return the texts and choices of a page, without those of hidden widgets."""
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    shown = [each for each in page.findChildren(QWidget) if each.isVisibleTo(page)]
    texts = [each.text() for each in shown if isinstance(each, QLabel | QAbstractButton)]
    boxes = [each for each in shown if isinstance(each, QComboBox)]
    choices = [box.itemText(index) for box in boxes for index in range(box.count())]
    return "\n  ".join(filter(None, (*texts, *choices)))


def describe_advice() -> Iterator[str]:
    for candidate in (MEASURED, REQUESTED, FAILED):
        yield " | ".join(f"{column.text(candidate)} ({column.tip(candidate)})" for column in COLUMNS)
        yield from advice_format.describe_candidate(candidate)
    equal = structs.replace(REQUESTED, images_per_second=1230.0, low=1200.0, high=1260.0)
    for answer in (
        ADVICE,
        structs.replace(ADVICE, table=(MEASURED, equal), memory_by="none"),
        structs.replace(ADVICE, table=(MEASURED, equal), ended_by="stopped", versions={}, hardware=()),
        structs.replace(ADVICE, fits=False),
    ):
        yield from advice_format.describe_measurement(answer)
    view = AnswerView()
    left = structs.replace(ADVICE, fits=False, ended_by="time", sentence="No. Not here. Or there.", remedies=())
    for answer, machines in (
        (ADVICE, 2),
        (structs.replace(ADVICE, is_cached=True, ended_by="time", left_out=()), 2),
        (structs.replace(ADVICE, fits=False, is_cached=True), 1),
        (left, 1),
    ):
        view.fold.setChecked(True)
        view.show_answer(answer, machines)
        yield f"{answer.ended_by}, {machines}, {view.fold.isChecked()}: {join_visible_texts(view)}"
    yield advice_format.format_answer(ADVICE, ("Name", "Speed"), (("DDP", "1"),))
    for left, considered in ((5, 41), (0, 0)):
        yield advice_format.describe_progress(
            AdviceProgress(fraction=0.1, what="", seconds_left=34, left=left, considered=considered)
        )


def describe_datasets() -> Iterator[str]:
    shares = SplitReport("val", {"crate": 3}, shares={"crate": 0.312, "pallet": 0.05})
    unreadable = tuple(UnreadableImage(f"{number}.jpg", "it ends") for number in range(2))
    sizes = ImageSizes((240, 180), (500, 375), (1024, 768), 64)
    sides = structs.replace(UNCERTAIN.splits[0], object_sides=(8.2, 20.0, 61.0), total=1)
    equal = ImageSizes((720, 576), (720, 576), (720, 576), 64)
    for report in (
        UNCERTAIN,
        structs.replace(UNCERTAIN, sizes=sizes, unreadable=unreadable[:1], unreadable_count=1, title="", evidence=()),
        structs.replace(
            UNCERTAIN, sizes=equal, unreadable=unreadable, unreadable_count=1204, kind="classes", classes=()
        ),
        structs.replace(UNCERTAIN, kind="points", title="point clouds", splits=(sides, shares)),
    ):
        yield dataset_format.describe_size(report)
        yield dataset_format.describe_dataset(report)
        yield dataset_format.list_class_counts(report)
        yield dataset_format.list_unreadable_files(report)
        yield from map(dataset_format.describe_objects, report.splits)
    example = structs.replace(UNCERTAIN.examples[0], class_name="crate, pallet")
    several = structs.replace(UNCERTAIN, examples=(example, structs.replace(example, class_name="pallet, box")))
    single = structs.replace(UNCERTAIN, examples=UNCERTAIN.examples[:1])
    plain = structs.replace(UNCERTAIN, examples=(), splits=(shares,), problems=UNCLEAR.problems)
    yield from (dataset_format.make_question(structs.replace(UNCLEAR, readings=UNCLEAR.readings[:n])) for n in (1, 2))
    yield from map(dataset_format.list_evidence, UNCLEAR.readings)
    other = Choice("As boxes", {"format": "coco", "task": "other"})
    without_task = Problem("dataset", "Unclear.", "Choose.", choices=(other, Choice("Skip", {"format": "none"})))
    offered = structs.replace(UNCLEAR, problems=(without_task,))
    for report in (UNCLEAR, offered):
        yield from (str(dataset_format.find_choice(reading, report)) for reading in UNCLEAR.readings)
    for problem in dataset_format.remove_reading_choices((*UNCLEAR.problems, without_task), UNCLEAR):
        yield f"{problem}: {', '.join(choice.title for choice in problem.choices)}"
    page = DatasetPage()
    for report, job in (
        (UNCERTAIN, None),
        (UNCLEAR, None),
        (several, Job.from_fields(epochs=2)),
        (plain, None),
        (single, None),
    ):
        page.show_notice("A notice.")
        page.set_job(job)
        page.show_report(report)
        captions = " | ".join(page.examples.item(n).text() for n in range(page.examples.count()))
        yield f"{captions}: {join_visible_texts(page)}"
        yield page.bars.accessibleDescription()
    bars = ClassBalance()
    bars.show_report(structs.replace(UNCERTAIN, splits=(UNCERTAIN.splits[0], shares)))
    yield bars.toolTip()
    yield " ".join(f"{bars.compute_bar_fraction(row, split):.3f}" for row in (0, 1) for split in (0, 1))


def describe_runs() -> Iterator[str]:
    run = RunSummary(
        run_id="run-1", folder="/nowhere/run-1", name="night", model="resnet18", strategy="ddp", devices=(CPU,), dataset="",
        state="running", started=1e9, seconds=100.0, best={"top1": 0.8}, cause="A cable.", epoch=3, step=60,
        phase="training", epochs=9, tags=("v2", "b"), notes="Too slow.", favorite=True,
    )  # fmt: skip
    details, banners, model, place = Details(()), InterruptedRuns(), RunsModel(), QWidget()
    acts = RunActions(place, place)
    states: tuple[State, ...] = ("starting", "waiting", "running", "interrupted", "completed", "failed")
    for state in states:
        for changes in ({"slurm": "job 7"}, {"seconds": None, "best": {}, "cause": ""}):
            details.show_runs([structs.replace(run, state=state, **changes)])  # type: ignore[arg-type]
            yield details.state.text()
    for changes in ({}, {"state": "completed", "has_checkpoint": True}, {"state": "failed", "favorite": False}):
        shown = structs.replace(run, **changes)  # type: ignore[arg-type]
        acts.set_runs([shown])
        for act in (acts.resume, acts.change, acts.pause, acts.delete):
            yield f"{act.text()}: {act.toolTip()} {act.disabled_reason}"
        yield f"favorite: {acts.favorite.isChecked()}"
        model.merge([structs.replace(shown, name="", slurm="job 7")])
        yield " | ".join(model.index(0, column).data() for column in range(model.columnCount()))
        roles = (Qt.ItemDataRole.EditRole, Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleTextRole)
        yield from (str(model.index(0, 0).data(role)) for role in roles)
    acts.set_runs([run, structs.replace(run, favorite=False)])
    yield f"favorites: {acts.favorite.isChecked()}"
    banners.show_runs(
        [structs.replace(run, state="interrupted", run_id=f"run-{n}", started=1e9 * n) for n in (1, 2, 3)]
    )
    yield from (label.text() for label in banners.findChildren(QLabel))


def describe_notices() -> Iterator[str]:
    for settings in (
        NoticeSettings(),
        NoticeSettings(desktop=False, command="beep", least_minutes=0.0),
        NoticeSettings(failed=False, command="beep", least_minutes=2.5),
        NoticeSettings(desktop=False),
        NoticeSettings(ended=False, failed=False, stalled=False),
    ):
        yield describe_settings(settings)
    yield from describe_deliveries(
        NoticeSent(desktop_by="notify-send", command_code=0, command_s=1.24, command_output="ok")
    )
    yield from describe_deliveries(NoticeSent(command_code=0, command_s=2.0))
    yield from describe_deliveries(NoticeSent(command_code=127))


def describe_split_points() -> Iterator[str]:
    view, titles = SplitPointsView(), ("first", "second", "third")
    *segments, last = make_split(("stem", "block3"), (CPU,) * 3).segments
    segments.append(structs.replace(last, parameters=6_200_000))
    for split in (
        make_split(("stem", "block3"), (CPU,) * 3, segments=tuple(segments), memory_bytes=(None, 1000, 2000)),
        make_split(("block1", "block2", "block4"), stage_ranks=(0, 1, 1, 0), in_flight=(2, 2, 1, 1), chosen=True),
        make_split(memory_bytes=(1 << 30, None), recomputed=True, microbatches=1),
    ):
        view.show_split(split, titles[: len(split.devices)])
        yield f"{view.balance.text()} {view.origin.text()} {view.automatic.isEnabled()}"
        yield view.diagram.accessibleDescription()
        for row in range(view.model.rowCount()):
            yield " | ".join(view.model.index(row, column).data() for column in range(view.model.columnCount()))
            yield view.model.index(row, 0).data(Qt.ItemDataRole.ToolTipRole)
        yield from (f"{handle.accessibleName()}: {handle.toolTip()}" for handle in view.diagram.handles)


def describe_processes() -> Iterator[str]:
    known = {
        "host": "box",
        "host_title": "box (remote)",
        "started": 1.0,
        "gpus": ("GPU 0", "GPU 1"),
        "devices": ("a", "b"),
    }
    group = ProcessRow(
        key=("g",), title="night", group=True, pid=1, memory_used_bytes=3 << 30, sm_percent=12.4, cpu_percent=640.0,
        host_memory_bytes=5 << 30, running_s=93_784, note="it is stuck", **known,
    )  # fmt: skip
    member = replace(
        group,
        key=("m",),
        parent=("g",),
        title="python",
        group=False,
        pid=77,
        user="anna",
        kind="both",
        mine=True,
        running_s=192,
        note="",
        command="python train.py",
    )
    orphan = ProcessRow(
        key=("o",), parent=("x",), host="", host_title="This machine", title="orphan", pid=9, note="a zombie"
    )
    model, rows = ProcessModel(), ProcessRows()
    model.show_lines([group, member, orphan])
    rows.setSourceModel(model)
    rows.sort(GPU_MEMORY, Qt.SortOrder.DescendingOrder)
    columns = range(model.columnCount())
    for parent in (QModelIndex(), model.find(("g",))):
        for row in range(model.rowCount(parent)):
            cells = [model.index(row, column, parent) for column in columns]
            yield " | ".join(cell.data() for cell in cells)
            yield f"{cells[0].data(Qt.ItemDataRole.ToolTipRole)!r} {bool(cells[0].data(Qt.ItemDataRole.FontRole))}"
            yield " | ".join(str(cell.data(SORT_ROLE)) for cell in cells)
    yield " ".join(str(model.has_been_known(column)) for column in columns)
    for text, only_mine, device in (("", False, ""), ("night train.py", False, ""), ("", True, ""), ("", False, "c")):
        rows.set_filter(text=text, only_mine=only_mine, device=device)
        yield f"{text} {only_mine} {device}: {[rows.index(row, 0).data() for row in range(rows.rowCount())]}"


def describe_devices() -> Iterator[str]:
    panel = DevicesPanel(DeviceHistory())
    panel.set_hosts(("box",))
    gpus = (
        gpu(0, processes=held_by("anna", 12 << 30), mig_enabled=True),
        gpu(1, throttled=("thermal", "power_cap"), utilization_percent=3.0, temperature_c=91.0),
        gpu(2, cuda_index=2, lost=True, lost_since=1_700_000_000.0),
        gpu(3, cuda_index=None, asleep=True, temperature_c=44.0),
        gpu(
            4,
            cuda_index=4,
            memory_used_bytes=None,
            memory_total_bytes=None,
            utilization_percent=None,
            temperature_c=None,
        ),
    )
    seen = snapshot(*gpus)
    for host in ("", "box"):
        panel.history.add(seen, host)
        panel.update_snapshot(seen, host)
    panel.set_selection((UUIDS[1], f"box:{UUIDS[4]}", "box:cpu", "box:cpu", "box:cpu"))
    panel.show_error("box doesn't respond.", "box")
    yield join_visible_texts(panel)
    for row in panel.findChildren(DeviceRow):
        state = (row.check.isChecked(), row.check.isEnabled(), row.objectName(), row.note.objectName())
        yield f"{row.check.accessibleName()}: {row.check.accessibleDescription()} {state}"
        if isinstance(row, CpuRow):
            yield str(row.workers.maximum() if row.check.isChecked() else row.workers.value())
        yield row.toolTip() if "box" not in row.check.accessibleName() else ""


CASES: dict[str, Callable[[], Iterator[str]]] = {
    "advice": describe_advice,
    "dataset": describe_datasets,
    "runs": describe_runs,
    "notices": describe_notices,
    "split points": describe_split_points,
    "processes": describe_processes,
    "devices": describe_devices,
}


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("styled", "utc")
@pytest.mark.parametrize("name", CASES)
def test_formats_equal_the_golden_file(name: str) -> None:
    check_section(GOLDEN, name, "\n".join(CASES[name]()))
