"""Termination of real processes: only after confirmation, and only the user's own processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import psutil
import pytest
from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.devices import GpuProcess
from gui.monitor.processes.process_rows import ProcessRow, process_rows
from gui.monitor.processes.termination import CannotEnd, EndingBar, disabled_reason, end_process
from gui.monitor.processes.view import ProcessesView
from gui.sources.devices.hosts import Hosts
from gui.sources.run_intervals import RunInterval, RunIntervals
from tests.gui.monitor.machines import NOW, deliver_snapshot, make_process
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot
from tests.support.nvml_stub import NvmlStub, make_gpu_profile
from tests.support.widgets import ShowWidget

pytestmark = pytest.mark.skipif(os.name != "posix", reason="ends processes with signals")

POLITE = "import sys, time; print('ready', flush=True); time.sleep(600)"
SIGTERM = "It receives SIGTERM and may save its work first."
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)
Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a child process and waits until it is ready."""
    children = []

    def run(program: str) -> subprocess.Popen[str]:
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout.readline() == "ready\n"
        return child

    yield run
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def view(show_widget: ShowWidget, hosts: Hosts, qtbot: QtBot) -> ProcessesView:
    view = ProcessesView(hosts, RunIntervals())
    view.bar.patience_s = 600.0
    show_widget(view, 1000, 500)
    qtbot.waitUntil(view.isActiveWindow)
    return view


def make_child_process(child: subprocess.Popen[str], **changes: object) -> GpuProcess:
    return make_process(child.pid, **({"started": psutil.Process(child.pid).create_time()} | changes))


def show(hosts: Hosts, view: ProcessesView, *processes: GpuProcess) -> None:
    """Show processes in the view, and select the first of them."""
    deliver_snapshot(hosts, snapshot(gpu(0, cuda_index=0, processes=processes)))
    view.tree.setCurrentIndex(view.rows.index(0, 0))
    view.tree.setFocus()


def a_line(**changes: object) -> ProcessRow:
    (line,) = process_rows("", snapshot(gpu(0, processes=(make_process(5, **changes),))), [], lambda pid: None)
    return line


def test_end_asks_first(start: Start, hosts: Hosts, view: ProcessesView, qtbot: QtBot) -> None:
    child = start(POLITE)
    show(hosts, view, make_child_process(child, command="python3 train.py"))
    qtbot.keyClick(view.tree, Qt.Key.Key_Delete)
    assert view.bar.text().startswith("End python3 (pid ")
    assert view.bar.no.hasFocus()
    qtbot.keyClick(view.bar.no, Qt.Key.Key_Escape)
    assert not view.bar.isVisible()
    assert view.tree.hasFocus()
    assert child.poll() is None
    view.end.click()
    view.bar.yes.click()
    qtbot.waitUntil(lambda: "has ended" in view.bar.text())
    assert child.wait(120) == -15
    assert not view.bar.yes.isVisible()
    view.bar.no.click()
    assert not view.bar.isVisible()


def test_end_kills_after_second_confirmation(start: Start, hosts: Hosts, view: ProcessesView, qtbot: QtBot) -> None:
    child = start(STUBBORN)
    show(hosts, view, make_child_process(child))
    view.end.click()
    view.bar.yes.click()
    assert "was asked to end" in view.bar.text()
    view.bar.patience_s = 0.3
    qtbot.waitUntil(lambda: "still running after 0.3 s" in view.bar.text())
    assert (view.bar.yes.text(), view.bar.no.text()) == ("Kill it", "Leave it")
    assert child.poll() is None
    view.bar.yes.click()
    qtbot.waitUntil(lambda: "has ended" in view.bar.text())
    assert child.wait(120) == -9


def test_end_leaves_stubborn_process(start: Start, hosts: Hosts, view: ProcessesView, qtbot: QtBot) -> None:
    child = start(STUBBORN)
    show(hosts, view, make_child_process(child))
    view.bar.patience_s = 0.3
    view.end.click()
    requested_at = time.monotonic()
    view.bar.yes.click()
    qtbot.waitUntil(view.bar.yes.isVisible)
    assert time.monotonic() - requested_at > 0.3
    view.end.click()
    assert not any(timer.isActive() for timer in view.bar.findChildren(QTimer))
    assert view.bar.yes.text() == "End process"
    view.bar.yes.click()
    assert "was asked to end" in view.bar.text()
    view.bar.no.click()
    assert child.poll() is None


def test_end_reports_process_that_has_ended(start: Start, hosts: Hosts, view: ProcessesView, qtbot: QtBot) -> None:
    child = start(POLITE)
    show(hosts, view, make_child_process(child))
    view.end.click()
    child.kill()
    child.wait()
    view.bar.yes.click()
    assert view.bar.text() == f"Process {child.pid} has already ended."


def test_end_never_hits_reused_pid(start: Start, hosts: Hosts, view: ProcessesView) -> None:
    child = start(POLITE)
    created = psutil.Process(child.pid).create_time()
    show(hosts, view, make_child_process(child, started=created - 100))
    view.end.click()
    view.bar.yes.click()
    assert "has already ended" in view.bar.text()
    assert child.poll() is None
    for started in (1.0, created - 2, created + 2):
        with pytest.raises(CannotEnd, match="has already ended"):
            end_process(child.pid, started, kill=True)
    assert child.poll() is None


def test_end_reports_refusal(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    child = start(POLITE)

    def refuse(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "terminate", refuse)
    with pytest.raises(CannotEnd, match="not permitted"):
        end_process(child.pid, psutil.Process(child.pid).create_time())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, f"(pid 5)? It holds 1.0 GiB of GPU 1 and has run for 1:00:00 h. {SIGTERM}\npython3 train.py --number 5"),
        ({"user": None, "command": ""}, f"(pid 5)? It holds 1.0 GiB of GPU 1 and has run for 1:00:00 h. {SIGTERM}"),
        (
            {"user": "anna", "memory_used_bytes": None, "started": None, "command": ""},
            f"(pid 5) of anna? It holds GPU 1. {SIGTERM}",
        ),
    ],
)
def test_end_question_names_what_is_known(
    styled: QApplication, qtbot: QtBot, changes: dict[str, object], text: str
) -> None:
    bar = EndingBar()
    qtbot.addWidget(bar)
    bar.ask(a_line(**changes))
    assert bar.text() == f"End python3 {text}"
    assert bar.patience_s == 5.0


@pytest.mark.parametrize(
    ("line", "foreign", "expected"),
    [
        (None, False, "Choose a process"),
        (None, True, "container"),
        (a_line(), False, ""),
        (a_line(), True, "container"),
        (a_line(started=None), False, "Its start time is unknown"),
        (replace(a_line(started=None), group=True), False, "Choose one of the processes under it."),
        (replace(a_line(), host="ws2", host_title="workstation 2"), True, "Runs on workstation 2"),
        (a_line(user="alice"), False, "Belongs to alice"),
        (a_line(user=None), False, "an unknown user"),
    ],
)
def test_disabled_reason(
    monkeypatch: pytest.MonkeyPatch, line: ProcessRow | None, foreign: bool, expected: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    why = disabled_reason(line, foreign)
    assert expected in why
    assert bool(why) == bool(expected)


def test_disabled_reason_for_administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert disabled_reason(a_line(user="alice"), False) == ""
    (window,) = process_rows("", snapshot(gpu(0, processes=(make_process(os.getpid()),))), [], lambda pid: None)
    assert "own window" in disabled_reason(window, False)
    assert "container" in disabled_reason(a_line(), True)


def test_disabled_reason_on_other_host(hosts: Hosts, view: ProcessesView) -> None:
    hosts.add("ws2")
    deliver_snapshot(hosts, snapshot(gpu(0, processes=(make_process(5),))), host="ws2")
    view.tree.setCurrentIndex(view.rows.index(0, 0))
    assert not view.end.isEnabled()
    assert view.end.accessibleDescription() == view.end.toolTip() != ""


def test_end_of_run_process_stops_run(hosts: Hosts, view: ProcessesView, qtbot: QtBot) -> None:
    run = RunInterval("20990101-000000-resnet18-ab12", "flowers", (UUIDS[0],), "running", NOW - 60, supervisor=700)
    view._intervals.intervals = (run,)
    show(hosts, view, make_process(701, ancestors=(700, 1)))
    for line in (view.rows.index(0, 0), view.rows.index(0, 0, view.rows.index(0, 0))):
        view.tree.setCurrentIndex(line)
        assert view.end.text().replace("&", "") == "Stop the run…"
        view.end.click()
        assert "Stop the run flowers?" in view.bar.text()
        with qtbot.waitSignal(view.stop_run) as stopped:
            view.bar.yes.click()
        assert stopped.args == [run.run_id]
        assert not view.bar.isVisible()


def test_end_explains_unkillable_process(
    start: Start, styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(STUBBORN)
    monkeypatch.setattr(psutil.Process, "kill", lambda process: None)  # as if the process were blocked in the driver
    bar = EndingBar()
    bar.patience_s = 0.2
    qtbot.addWidget(bar)
    lines = process_rows("", snapshot(gpu(0, processes=(make_child_process(child),))), [], lambda pid: None)
    bar.ask(lines[0])
    bar.yes.click()
    qtbot.waitUntil(lambda: bar.yes.text() == "Kill it")
    bar.yes.click()
    qtbot.waitUntil(lambda: "waiting for the driver" in bar.text())
    bar.no.click()


def test_end_process_found_by_sampler(
    start: Start, hosts: Hosts, view: ProcessesView, nvml_stub: NvmlStub, qtbot: QtBot
) -> None:
    child = start(POLITE)
    nvml_stub.write([make_gpu_profile(0, process=[f"{child.pid}:{3 << 30}"])])
    hosts.start()
    qtbot.waitUntil(lambda: view.rows.rowCount() == 1)
    if hosts.latest[""].foreign_pids:
        pytest.skip("in a container NVML's pids are the host's")
    view.tree.setCurrentIndex(view.rows.index(0, 0))
    chosen = view.selected()
    assert (chosen.pid, chosen.mine, chosen.memory_used_bytes) == (child.pid, True, 3 << 30)
    assert POLITE[:20] in chosen.command
    view.end.click()
    view.bar.yes.click()
    qtbot.waitUntil(lambda: "has ended" in view.bar.text())
    assert child.wait(120) == -15
