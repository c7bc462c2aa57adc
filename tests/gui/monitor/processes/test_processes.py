"""Table of GPU processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import msgspec
import psutil
import pytest
from PySide6.QtCore import QItemSelectionModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from engine.contract.devices import GpuProcess, Mig, Snapshot
from gui.monitor.processes.model import COLUMNS, ProcessModel
from gui.monitor.processes.process_rows import describe_sharing, process_rows
from gui.monitor.processes.view import ASKING_S, ProcessesView
from gui.sources.devices.device_format import current_user
from gui.sources.devices.hosts import Hosts
from gui.sources.run_intervals import RunInterval, RunIntervals
from gui.style import theme
from tests.gui.monitor.machines import GIB, NOW, deliver_snapshot, make_gpu, make_process
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot
from tests.support.nvml_profiles import FOREIGN, MACHINES
from tests.support.nvml_stub import NvmlStub
from tests.support.widgets import ShowWidget, join_visible_texts, list_column_texts

RUN = RunInterval("20990101-000000-resnet18-ab12", "flowers", (UUIDS[0], UUIDS[1]), "running", NOW - 60, supervisor=700)
Row = tuple[int, str]


@pytest.fixture
def marks(qtbot: QtBot) -> RunIntervals:
    return RunIntervals()


@pytest.fixture
def view(show_widget: ShowWidget, hosts: Hosts, marks: RunIntervals) -> ProcessesView:
    return show_widget(ProcessesView(hosts, marks), 1000, 500)


def column(title: str) -> int:
    return [each.title for each in COLUMNS].index(title)


def list_rows(view: ProcessesView, parent: QModelIndex | None = None, depth: int = 0) -> list[Row]:
    """Return the depth and the title of each row below `parent`, by default of all rows, from top to bottom.

    Rows below the top level have larger depths than `depth`, which is that of the first level.
    """
    above = parent or QModelIndex()
    found: list[Row] = []
    for number in range(view.rows.rowCount(above)):
        index = view.rows.index(number, 0, above)
        found += [(depth, index.data()), *list_rows(view, index, depth + 1)]
    return found


def every_index(view: ProcessesView, parent: QModelIndex | None = None) -> list[QModelIndex]:
    above = parent or QModelIndex()
    siblings = [view.rows.index(row, 0, above) for row in range(view.rows.rowCount(above))]
    return [found for index in siblings for found in (index, *every_index(view, index))]


def cells(view: ProcessesView, title: str) -> list[str]:
    return list_column_texts(view.rows, column(title))


def make_snapshot(*processes: GpuProcess, time: float = NOW) -> Snapshot:
    return snapshot(gpu(0, cuda_index=0, processes=processes), time=time)


def choose(view: ProcessesView, row: int) -> None:
    view.tree.setCurrentIndex(view.rows.index(row, 0))


# Groups


def test_process_on_several_gpus_is_one_row(hosts: Hosts, view: ProcessesView) -> None:
    first = make_process(500, memory_used_bytes=3 * GIB, sm_percent=60.0)
    second = make_process(500, memory_used_bytes=5 * GIB, sm_percent=20.0, kind="graphics")
    deliver_snapshot(hosts, snapshot(make_gpu(1, processes=(second,)), make_gpu(0, processes=(first,))))
    expected = {
        "PID": ["500"], "GPU": ["GPU 0, 1"], "Type": ["Both"], "GPU memory": ["8.0 GiB"], "SM": ["40%"],
        "CPU": ["100%"], "Host memory": ["2.0 GiB"], "Running": ["1:00:00 h"],
    }  # fmt: skip
    assert {title: cells(view, title) for title in expected} == expected
    swatches = view.rows.index(0, column("GPU")).data(Qt.ItemDataRole.DecorationRole).pixmap(22, 9).toImage()
    colors = [theme.device_color(make_gpu(n).uuid) for n in range(2)]
    assert [swatches.pixelColor(x, 0).name() for x in (0, 8, 11, 19)] == [colors[0]] * 2 + [colors[1]] * 2
    assert [swatches.pixelColor(x, 0).alpha() for x in (9, 10, 20)] == [0] * 3
    third = make_process(500, memory_used_bytes=None, sm_percent=None, started=NOW + 5)  # counts as 0%
    deliver_snapshot(
        hosts,
        snapshot(*(make_gpu(n, processes=(use,)) for n, use in enumerate((third, first, second)))),
    )
    assert [cells(view, title) for title in ("GPU memory", "SM", "Running")] == [["8.0 GiB"], ["27%"], ["0 s"]]
    deliver_snapshot(hosts, make_snapshot(make_process(500, started=NOW - 2 * 86_400 - 3700)))
    assert cells(view, "Running") == ["2 d 1 h"]


def test_tree_groups_by_run_parent_and_ancestor() -> None:
    ranks = (
        make_process(701, ancestors=(700, 9, 1), started=NOW - 7200),
        make_process(702, ancestors=(700, 9, 1)),
        make_process(703, ancestors=(702, 700, 9, 1)),
        make_process(704, ancestors=(703, 702, 700, 9, 1)),
    )
    launched = (make_process(811, ancestors=(810, 1)), make_process(812, ancestors=(810, 1)))
    parent, child = make_process(900, ancestors=(1,), name="launcher"), make_process(901, ancestors=(900, 1))
    grandchild = make_process(902, ancestors=(901, 900, 1))
    alone = make_process(950, ancestors=(940, 1))
    sample = snapshot(gpu(0, processes=(*ranks, *launched, parent, child, grandchild, alone)))
    lines = process_rows("", sample, [RUN], {810: "torchrun"}.get)
    titles = {line.key: line.title for line in lines}
    assert {line.pid: titles.get(line.parent or ()) for line in lines if not line.group} == {
        701: "Run flowers (4)",
        702: "Run flowers (4)",
        703: "python3",
        704: "python3",
        811: "torchrun (2)",
        812: "torchrun (2)",
        900: None,
        901: "launcher",
        902: "python3",
        950: None,
    }
    (run,) = [line for line in lines if line.group and line.run is not None]
    assert (run.pid, run.memory_used_bytes, run.sm_percent, run.cpu_percent) == (700, 4 * GIB, 160.0, 400.0)
    assert (run.user, run.mine, run.running_s) == (current_user(), True, 7200)
    assert (run.host_memory_bytes, run.kind) == (8 * GIB, "compute")


def test_run_sm_percent_is_mean_over_gpus() -> None:
    users = (current_user(), "anna")
    ranks = [make_process(701 + n, ancestors=(700,), sm_percent=30.0 + 20.0 * n, user=users[n]) for n in range(2)]
    sample = snapshot(make_gpu(0, processes=ranks), make_gpu(1, processes=ranks[1:]))
    (group,) = [line for line in process_rows("", sample, [RUN], lambda pid: None) if line.group]
    assert group.gpus == ("GPU 0", "GPU 1")
    assert group.sm_percent == 65.0  # 30% on the first GPU, and 50% by the other rank on each
    assert (group.user, group.mine) == (None, False)


def test_remote_and_container_pids_match_no_run() -> None:
    sample = make_snapshot(make_process(701, ancestors=(700, 1)), make_process(700))
    assert all(line.run is None for line in process_rows("ws2", sample, [RUN], lambda pid: None))
    inside = msgspec.structs.replace(sample, foreign_pids=True)
    ended = replace(RUN, state="completed", end=NOW)
    for each, runs in ((inside, [RUN]), (sample, [ended])):
        assert all(line.run is None for line in process_rows("", each, runs, lambda pid: None))
    assert all(line.run is RUN for line in process_rows("", sample, [RUN], lambda pid: None))
    siblings = make_snapshot(make_process(811, ancestors=(810, 1)), make_process(812, ancestors=(810, 1)))
    groups = [process_rows(host, siblings, [], {810: "torchrun"}.get)[0].title for host in ("", "ws2")]
    assert groups == ["torchrun (2)", "Same parent (2)"]


def test_processes_with_cyclic_ancestors_are_listed(hosts: Hosts, view: ProcessesView) -> None:
    deliver_snapshot(
        hosts,
        make_snapshot(
            make_process(5, ancestors=(6, 1)), make_process(6, ancestors=(5, 1)), make_process(7, ancestors=(7, 1))
        ),
    )
    assert sorted(cells(view, "PID")) == ["5", "6", "7"]


def test_processes_of_lost_gpu_are_left_out(hosts: Hosts, view: ProcessesView) -> None:
    deliver_snapshot(
        hosts, snapshot(make_gpu(0, processes=(make_process(1),), lost=True), make_gpu(1, processes=(make_process(2),)))
    )
    assert cells(view, "PID") == ["2"]


def test_process_names_mig_instance(hosts: Hosts, view: ProcessesView) -> None:
    instance = Mig(parent_uuid=UUIDS[0], gpu_instance=3, profile="1g.18gb")
    deliver_snapshot(
        hosts, snapshot(make_gpu(0), make_gpu(1, nvml_index=0, mig=instance, processes=(make_process(2),)))
    )
    assert cells(view, "GPU") == ["GPU 0 MIG 3"]


# Other users


def test_view_reports_other_user_on_run_gpu(hosts: Hosts, view: ProcessesView, marks: RunIntervals) -> None:
    mine = make_process(701, ancestors=(700, 1), memory_used_bytes=3 * GIB)
    other = make_process(44, user="alice", name="jupyter", memory_used_bytes=2 * GIB)
    desktop = make_process(45, user="root", name="Xorg", kind="graphics")
    elsewhere = make_process(44, user="alice", name="jupyter", memory_used_bytes=0)
    shared = (gpu(0, cuda_index=0, processes=(mine, other, desktop)), gpu(3, cuda_index=3, processes=(elsewhere,)))
    deliver_snapshot(hosts, snapshot(*shared))
    marks.replace((RUN,), {})
    assert "GPU 0, held by run flowers, is also used by alice." in join_visible_texts(view)
    assert list_rows(view) == [
        (0, "Run flowers (1) · also used by alice"),
        (1, "python3 · also used by alice"),
        (0, "jupyter · on GPU 0, held by run flowers"),
        (0, "Xorg"),
    ]
    roles = (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.FontRole)
    tip, font = (view.rows.index(0, 0).data(role) for role in roles)
    assert tip.startswith("Run flowers (1)\n⚠ Also used by alice")
    assert font.bold()
    tip, font = (view.rows.index(1, 0).data(role) for role in roles)
    assert "⚠ On GPU 0, held by run flowers" in tip
    assert font is None
    icons = [view.rows.index(*cell).data(Qt.ItemDataRole.DecorationRole) for cell in ((0, 0), (1, 0), (2, 0), (0, 1))]
    assert [icon is None for icon in icons] == [False, False, True, True]
    view.filter.setText("held BY")
    assert list_rows(view) == [(0, "jupyter · on GPU 0, held by run flowers")]
    deliver_snapshot(hosts, make_snapshot(mine, desktop))
    assert "also used" not in join_visible_texts(view)


def test_sharing_names_each_user_once() -> None:
    others = [make_process(40 + n, user=user) for n, user in enumerate(("alice", "bob", "alice", "carol"))]
    sample = snapshot(
        make_gpu(0, uuid=UUIDS[0], processes=(others[0], others[2])),
        make_gpu(1, uuid=UUIDS[1], processes=others),
    )
    for devices, text in (
        (RUN.devices, "GPU 0, 1, held by run flowers, are"),
        (UUIDS[1:2], "GPU 1, held by run flowers, is"),
    ):
        run = replace(RUN, devices=devices)
        sentence = describe_sharing(process_rows("", sample, [run], lambda pid: None), [run])
        assert sentence == f"{text} also used by alice, bob and carol."
    assert describe_sharing(process_rows("", sample, [], lambda pid: None), [replace(RUN, end=NOW)]) == ""


# Sorting, filtering, staying


def test_columns_sort_by_value_unknown_last(hosts: Hosts, view: ProcessesView) -> None:
    memory_by_pid = {1: 9 * GIB, 2: 80 * GIB, 3: None, 4: 10 * GIB, 5: 0}
    deliver_snapshot(
        hosts, make_snapshot(*(make_process(pid, memory_used_bytes=memory) for pid, memory in memory_by_pid.items()))
    )
    assert cells(view, "PID") == ["2", "4", "1", "5", "3"]
    view.tree.sortByColumn(column("PID"), Qt.SortOrder.AscendingOrder)
    assert cells(view, "GPU memory") == ["9.0 GiB", "80.0 GiB", "–", "10.0 GiB", "0 B"]


def test_filter_matches_row_and_parents(hosts: Hosts, view: ProcessesView, marks: RunIntervals) -> None:
    marks.intervals = (RUN,)
    desktop = make_process(88, user="Alice", kind="graphics", command="serve llama")
    deliver_snapshot(hosts, make_snapshot(make_process(701, ancestors=(700, 1)), desktop, make_process(99)))
    every = list_rows(view)
    assert "3 processes" in join_visible_texts(view)
    for text, pids in (
        ("alice", ["88"]), ("LLAMA serve", ["88"]), ("99", ["99"]), ("flowers", ["701"]), ("serve flowers", [])
    ):  # fmt: skip
        view.filter.setText(text)
        found = [view.rows.line(index) for index in every_index(view)]
        assert [str(line.pid) for line in found if line is not None and not line.group] == pids
        assert f"{len(pids)} of 3 processes" in join_visible_texts(view)
        assert view.tree.isVisible() == bool(pids)
    assert "No matching processes" in join_visible_texts(view)
    view.filter.clear()
    assert sorted(list_rows(view)) == sorted(every)


def test_filter_by_owner_and_gpu(hosts: Hosts, view: ProcessesView) -> None:
    first = make_gpu(0, processes=(make_process(1), make_process(2, user="alice")))
    deliver_snapshot(hosts, snapshot(make_gpu(1, processes=(make_process(3), make_process(4, user="alice"))), first))
    assert [view.gpus.itemText(row) for row in range(3)] == ["All GPUs", "GPU 0", "GPU 1"]
    view.only_mine.setChecked(True)
    assert sorted(cells(view, "PID")) == ["1", "3"]
    view.gpus.setCurrentIndex(view.gpus.findText("GPU 1"))
    assert cells(view, "PID") == ["3"]
    view.only_mine.setChecked(False)
    assert sorted(cells(view, "PID")) == ["3", "4"]
    deliver_snapshot(hosts, snapshot(first))
    assert view.gpus.currentText() == "All GPUs"
    assert sorted(cells(view, "PID")) == ["1", "2"]


def test_table_mode_names_run(hosts: Hosts, view: ProcessesView, marks: RunIntervals) -> None:
    marks.intervals = (RUN,)
    deliver_snapshot(hosts, make_snapshot(make_process(701, ancestors=(700, 1)), make_process(5, memory_used_bytes=1)))
    view.as_tree.setChecked(False)
    assert list_rows(view) == [(0, "python3 · run flowers"), (0, "python3")]
    view.as_tree.setChecked(True)
    assert list_rows(view) == [(0, "Run flowers (1)"), (1, "python3"), (0, "python3")]
    view.tree.selectAll()
    view.copy_selected()
    copied = [line.split("\t")[:2] for line in QGuiApplication.clipboard().text().split("\n")]
    assert copied == [["Process", "PID"], ["Run flowers (1)", "700"], ["python3", "701"], ["python3", "5"]]


def test_selection_and_scroll_survive_refresh(hosts: Hosts, view: ProcessesView) -> None:
    deliver_snapshot(
        hosts, make_snapshot(*(make_process(pid, memory_used_bytes=(90 - pid) * GIB) for pid in range(2, 62)))
    )
    row = cells(view, "PID").index("40")
    choose(view, row)
    view.tree.scrollTo(view.rows.index(row, 0), view.tree.ScrollHint.PositionAtTop)
    scrolled = view.tree.verticalScrollBar().value()
    assert scrolled > 0
    for second in range(1, 4):
        remaining = (
            make_process(pid, memory_used_bytes=(90 - pid) * GIB, sm_percent=second)
            for pid in range(2, 62)
            if pid != 50
        )
        deliver_snapshot(
            hosts, make_snapshot(*remaining, make_process(70 + second, memory_used_bytes=0), time=NOW + second)
        )
        chosen = view.selected()
        assert (chosen.pid, chosen.running_s) == (40, 3600 + second)
        assert view.tree.verticalScrollBar().value() == scrolled


def test_selection_survives_regrouping(hosts: Hosts, view: ProcessesView) -> None:
    starter = (os.getpid(), 1)
    first, other = make_process(811, ancestors=starter), make_process(5, memory_used_bytes=9 * GIB)
    deliver_snapshot(hosts, make_snapshot(other, first))
    choose(view, 1)
    deliver_snapshot(hosts, make_snapshot(other, first, make_process(812, ancestors=starter)))
    rows = [(0, "python3"), (0, f"{psutil.Process().name()} (2)"), (1, "python3"), (1, "python3")]
    assert list_rows(view) == rows
    chosen = view.selected()
    assert chosen.pid == 811
    assert all(view.tree.isExpanded(index) for index in every_index(view) if view.rows.hasChildren(index))
    unknown = [make_process(pid, ancestors=(1 << 30, 1)) for pid in (811, 812)]
    deliver_snapshot(hosts, make_snapshot(other, *unknown))
    assert list_rows(view)[1] == (0, "Same parent (2)")


def test_selection_ends_with_process(hosts: Hosts, view: ProcessesView) -> None:
    deliver_snapshot(hosts, make_snapshot(make_process(5), make_process(6), make_process(7)))
    choose(view, 1)
    chosen = view.selected()
    deliver_snapshot(hosts, make_snapshot(*(make_process(pid) for pid in (5, 6, 7) if pid != chosen.pid)))
    assert view.selected() is None
    assert not view.end.isEnabled()


def test_reused_pid_is_another_row(hosts: Hosts, view: ProcessesView) -> None:
    deliver_snapshot(hosts, make_snapshot(make_process(5)))
    choose(view, 0)
    deliver_snapshot(hosts, make_snapshot(make_process(5, started=NOW - 1)))
    assert view.selected() is None


def test_model_passes_tester(styled: QApplication, qtmodeltester: ModelTester) -> None:
    def show(*processes: GpuProcess) -> None:
        model.show_lines(process_rows("", make_snapshot(*processes), [RUN], lambda pid: None))
        qtmodeltester.check(model)

    model = ProcessModel()
    qtmodeltester.check(model)
    show(
        make_process(701, ancestors=(700, 1)),
        make_process(703, ancestors=(701, 700, 1)),
        make_process(5, ancestors=(4, 1)),
    )
    remaining = QPersistentModelIndex(model.find(("process", "", 5, str(NOW - 3600))))
    show(make_process(5, ancestors=(4, 1)), make_process(6, ancestors=(1,)), make_process(701, ancestors=(700, 1)))
    assert remaining.isValid()
    assert remaining.data() == "python3"
    show(make_process(5, ancestors=(4, 1)), make_process(7, ancestors=(4, 1)))
    assert not remaining.isValid()
    show()
    assert model.rowCount() == 0


def test_model_reports_changed_rows(styled: QApplication) -> None:
    model, changed = ProcessModel(), list[tuple[int, ...]]()
    model.dataChanged.connect(
        lambda first, last: changed.append((first.row(), first.column(), last.row(), last.column()))
    )

    def show(*memory_bytes: int) -> list[tuple[int, ...]]:
        processes = [make_process(pid, memory_used_bytes=size) for pid, size in enumerate(memory_bytes, 5)]
        changed.clear()
        model.show_lines(process_rows("", make_snapshot(*processes), [], lambda pid: None))
        return changed

    assert show(10, 20, 30, 40) == []
    assert show(10, 21, 31, 40) == [(1, 0, 2, len(COLUMNS) - 1)]
    assert show(10, 21, 31, 40) == []


def test_stale_index_is_empty(styled: QApplication) -> None:
    model = ProcessModel()
    sample = make_snapshot(make_process(701, ancestors=(700, 1)))
    model.show_lines(process_rows("", sample, [RUN], lambda pid: None))
    group = model.index(0, 0)
    child = model.index(0, 0, group)
    assert child.data() == "python3"
    model.show_lines([])
    for stale in (group, child):
        assert model.line(stale) is None
        assert model.data(stale) is None


# Reported and unreported values


def test_unreported_columns_are_hidden(hosts: Hosts, view: ProcessesView) -> None:
    bare = GpuProcess(5)
    deliver_snapshot(hosts, make_snapshot(bare))
    hidden = {each.title for number, each in enumerate(COLUMNS) if view.tree.isColumnHidden(number)}
    assert hidden == {"Host", "User", "GPU memory", "SM", "CPU", "Host memory", "Running", "Command"}
    deliver_snapshot(hosts, make_snapshot(make_process(5, sm_percent=None), GpuProcess(6)))
    hidden = {each.title for number, each in enumerate(COLUMNS) if view.tree.isColumnHidden(number)}
    assert hidden == {"Host", "SM"}
    deliver_snapshot(hosts, make_snapshot(bare))
    assert {each.title for number, each in enumerate(COLUMNS) if view.tree.isColumnHidden(number)} == hidden


def test_host_column_with_several_hosts(hosts: Hosts, view: ProcessesView) -> None:
    hosts.add("ws2")
    deliver_snapshot(hosts, make_snapshot(make_process(5)))
    deliver_snapshot(hosts, msgspec.structs.replace(make_snapshot(make_process(5)), host="workstation 2"), host="ws2")
    assert not view.tree.isColumnHidden(column("Host"))
    assert sorted(cells(view, "Host")) == ["here", "workstation 2"]
    assert view.gpus.findText("workstation 2 · GPU 0") > 0
    hosts.remove("ws2")
    assert view.tree.isColumnHidden(column("Host"))
    assert cells(view, "PID") == ["5"]


@pytest.mark.parametrize(
    ("sample", "expected_text"),
    [
        (snapshot(message="NVIDIA's driver is not loaded.", status="no_driver"), "driver is not loaded"),
        (snapshot(), "has no NVIDIA GPU"),
        (snapshot(gpu(0)), "No process holds a GPU"),
        (snapshot(gpu(0), status="not_answering", message="NVML is silent."), "held a GPU when NVML last responded"),
        (snapshot(gpu(0, processes=None)), "Listing GPU processes"),
        (snapshot(gpu(0, processes=None, asleep=True)), "asleep; it is not woken"),
        (snapshot(gpu(0, processes=None, asleep=True), gpu(1, processes=None)), "Listing GPU processes"),
        (snapshot(gpu(0, processes=None), gpu(1)), "No process holds a GPU"),
        (snapshot(gpu(0, lost=True)), "has no NVIDIA GPU"),
    ],
)
def test_empty_view_explains(hosts: Hosts, view: ProcessesView, sample: Snapshot, expected_text: str) -> None:
    assert "Looking for devices" in join_visible_texts(view)
    deliver_snapshot(hosts, sample)
    assert expected_text in join_visible_texts(view)
    assert "0 processes" not in join_visible_texts(view)
    assert view.end.accessibleDescription() not in join_visible_texts(view)


def test_unlisted_processes_are_awaited(hosts: Hosts, view: ProcessesView) -> None:
    for second, expected_text in ((0.0, "Listing"), (ASKING_S - 1, "Listing"), (ASKING_S, "driver does not report")):
        deliver_snapshot(hosts, snapshot(gpu(0, processes=None), time=NOW + second))
        assert expected_text in join_visible_texts(view)
    view.hide()
    view.show()
    assert "Listing" in join_visible_texts(view)


def test_hidden_view_is_not_refreshed(hosts: Hosts, view: ProcessesView) -> None:
    view.hide()
    deliver_snapshot(hosts, make_snapshot(make_process(5)))
    assert view.rows.rowCount() == 0
    view.show()
    assert cells(view, "PID") == ["5"]


def test_copy_selected_rows(hosts: Hosts, view: ProcessesView, qtbot: QtBot) -> None:
    deliver_snapshot(
        hosts, make_snapshot(make_process(5, user="anna"), make_process(6, user="alice", memory_used_bytes=2 * GIB))
    )
    view.tree.setFocus()
    choose(view, 1)
    view.tree.selectionModel().select(
        view.rows.index(0, 0), QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
    )
    assert view.selected() is None
    assert not view.end.isEnabled()
    assert view.end.toolTip() == "Select a single process to end it."
    assert [view.acts[name].ready for name in ("copy", "command")] == [True, False]
    qtbot.keyClick(view.tree, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    lines = [line.split("\t") for line in QGuiApplication.clipboard().text().splitlines()]
    assert [line[:3] for line in lines] == [
        ["Process", "PID", "User"],
        ["python3", "6", "alice"],
        ["python3", "5", "anna"],
    ]
    assert lines[0][-1] == "Command"
    assert lines[1][-1] == "python3 train.py --number 6"
    view.tree.clearSelection()
    choose(view, 0)
    view.acts["command"].trigger()
    assert QGuiApplication.clipboard().text() == "python3 train.py --number 6"
    view.tree.clearSelection()
    assert [view.acts[name].ready for name in ("copy", "command")] == [False, False]


def test_ctrl_f_focuses_filter(hosts: Hosts, view: ProcessesView, qtbot: QtBot) -> None:
    deliver_snapshot(hosts, make_snapshot(make_process(5)))
    qtbot.waitUntil(view.isActiveWindow)
    view.tree.setFocus()
    view.filter.setText("python")
    qtbot.keyClick(view.tree, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert (view.filter.hasFocus(), view.filter.selectedText()) == (True, "python")
    assert "(Ctrl+F)" in view.filter.toolTip()


def test_menu_sorts_like_headers(hosts: Hosts, view: ProcessesView, qtbot: QtBot) -> None:
    deliver_snapshot(
        hosts, make_snapshot(make_process(5, user="ben"), make_process(7, user="anna"), make_process(6, user="carl"))
    )

    qtbot.waitUntil(view.isActiveWindow)
    view.tree.setFocus()

    def sort_by(title: str) -> None:
        qtbot.keyClick(view.tree, Qt.Key.Key_F10, Qt.KeyboardModifier.ShiftModifier)
        sorting = [menu for menu in view.findChildren(QMenu) if menu.title() == "Sort by"][-1]
        chosen = COLUMNS[view.tree.header().sortIndicatorSection()].title
        assert [action.text() for action in sorting.actions() if action.isChecked()] == [chosen]
        offered = [action.text() for action in sorting.actions()]
        assert offered == [each.title for each in COLUMNS if each.title != "Host"]
        sorting.actions()[offered.index(title)].trigger()
        QApplication.activePopupWidget().close()

    sort_by("PID")
    assert cells(view, "PID") == ["7", "6", "5"]
    sort_by("PID")
    assert cells(view, "PID") == ["5", "6", "7"]
    sort_by("User")
    assert cells(view, "User") == ["anna", "ben", "carl"]
    sort_by("User")
    assert cells(view, "User") == ["carl", "ben", "anna"]


# Through the real sampler

Follow = Callable[[str], None]


@pytest.fixture
def follow(hosts: Hosts, nvml_stub: NvmlStub, view: ProcessesView, qtbot: QtBot) -> Follow:
    """Return a function that samples a stub machine until the view lists its processes."""

    def run(machine: str) -> None:
        MACHINES[machine].write(nvml_stub)
        hosts.start()
        qtbot.waitUntil(lambda: view.rows.rowCount() > 0)

    return run


@pytest.mark.parametrize(
    ("machine", "columns"),
    [
        ("wddm", {"PID": list(map(str, FOREIGN[:2])), "Type": ["Both", "Graphics"], "GPU memory": None, "SM": None}),
        ("mig", {"PID": [str(FOREIGN[1]), str(FOREIGN[0])], "GPU memory": ["2.0 GiB", "1.0 GiB"], "SM": None}),
        ("garbage", {"PID": [str(FOREIGN[0])], "GPU memory": None, "SM": None}),
        ("everything", {"GPU": ["GPU 0–7"] * 2, "GPU memory": ["640.0 GiB", "80.0 GiB"], "SM": ["71%", "9%"]}),
    ],
)
def test_processes_of_real_sampler(
    follow: Follow, view: ProcessesView, qtbot: QtBot, machine: str, columns: dict[str, list[str] | None]
) -> None:
    follow(machine)

    def table() -> dict[str, list[str] | None]:
        return {title: None if view.tree.isColumnHidden(column(title)) else cells(view, title) for title in columns}

    qtbot.waitUntil(lambda: table() == columns)


def test_old_driver_reports_memory(follow: Follow, old_nvml_stub: NvmlStub, view: ProcessesView) -> None:
    follow("old_driver")
    assert cells(view, "PID") == [str(FOREIGN[0])]
    assert cells(view, "GPU memory") == ["1.0 GiB"]
    assert cells(view, "Type") == ["Compute"]


@pytest.mark.usefixtures("normal_text")
def test_process_table_follows_text_size(hosts: Hosts, view: ProcessesView) -> None:
    both = make_process(500, user="u" * 40, name="n" * 200)
    deliver_snapshot(hosts, snapshot(make_gpu(0, processes=(both,)), make_gpu(1, processes=(both,))))
    tree, pid = view.tree, column("PID")
    measure = tree.fontMetrics().horizontalAdvance
    assert tree.columnWidth(column("User")) > measure("u" * 40)
    assert tree.columnWidth(column("GPU")) > measure("GPU 0, 1") + 40  # with padding and a square for each GPU
    assert tree.columnWidth(column("Process")) == view.width() * 3 // 10
    assert tree.columnWidth(pid) > measure("4194304")
    row_height = tree.rowHeight(view.rows.index(0, 0))
    tree.setColumnWidth(pid, 300)
    deliver_snapshot(hosts, make_snapshot(make_process(500), time=NOW + 1))
    assert tree.columnWidth(pid) == 300
    theme.choose("system", 200)
    assert tree.columnWidth(pid) < 300
    assert tree.columnWidth(pid) > tree.fontMetrics().horizontalAdvance("4194304")
    assert tree.rowHeight(view.rows.index(0, 0)) - row_height > 10
