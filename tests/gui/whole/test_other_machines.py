"""Runs on other machines in the real window: a run whose network is interrupted, and a remote run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QCheckBox
from pytestqt.qtbot import QtBot

from engine.contract.hosts import Host, put_host
from engine.runs.folder import RunFolder
from engine.runs.index import machine_of
from engine.system.paths import sample_dataset
from gui.main_window import MainWindow
from gui.monitor.hosts import HostDialog
from gui.runs.remote_dialog import RemoteRunsDialog
from tests.support.machines import Machines, find_obstacle
from tests.support.widgets import OpenWindow

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

NAME = "node1"
NAMED_MS = 20_000
"""Maximum number of milliseconds until the window names a machine that has lost its network."""


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """Yield a simulated machine that the window reaches over ssh."""
    if why := find_obstacle():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="fpw"))
    created = Machines(folder, (NAME,))
    ssh = folder / "window" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec ip netns exec {created.space("head")} /usr/bin/ssh -F {folder}/config "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FOOTPLATE_HOME", str(created.home))
    yield created
    created.close()
    shutil.rmtree(folder)


def check(window: MainWindow, name: str) -> QCheckBox:
    return next(box for box in window.findChildren(QCheckBox) if box.accessibleName() == name)


def test_remote_run_survives_network_loss(machines: Machines, open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    store = window.workspace.session
    window.acts.hosts.trigger()
    dialog = window.findChild(HostDialog)
    dialog.name.setText(NAME)
    dialog.add.click()
    qtbot.waitUntil(lambda: NAME in window.workspace.hosts.latest)
    dialog.close()
    check(window, "CPU").click()
    check(window, f"{NAME} CPU").click()
    assert window.form.devices == (f"{NAME}:cpu",)
    for field, value in (("epochs", 10_000), ("restarts", 3)):
        window.form.set_field(field, value)
    qtbot.waitUntil(window.form.train.isEnabled)
    window.form.train.click()
    qtbot.waitUntil(lambda: "last" in store.data.checkpoints and bool(store.data.devices))
    assert list(store.data.devices) == [f"{NAME}:cpu"]
    machines.unplug(NAME)
    qtbot.waitUntil(lambda: NAME in window.status.status.text(), timeout=NAMED_MS)
    qtbot.waitUntil(lambda: NAME in window.workspace.hosts.errors, timeout=NAMED_MS)
    qtbot.waitUntil(lambda: not window.form.train.isEnabled())
    assert NAME in window.form.body.devices_problems.text()
    machines.plug_in(NAME)
    qtbot.waitUntil(lambda: store.status.label == "Running" and len(store.data.restarts) == 1)
    step = store.data.step
    assert step > 0
    qtbot.waitUntil(lambda: store.data.step > step)
    qtbot.waitUntil(lambda: NAME not in window.workspace.hosts.errors)
    with qtbot.waitSignal(store.finished) as finished:
        window.acts.stop.trigger()
    assert finished.args == ["stopped"]


def test_remote_run_is_followed_and_fetched(machines: Machines, open_window: OpenWindow, qtbot: QtBot) -> None:
    put_host(Host(name=NAME))
    line = f"footplate train {sample_dataset()} --model mnist_cnn --recipe '' --devices cpu --epochs 10000 --detach"
    started = machines.start_on(NAME, line)
    output = started.communicate(timeout=120)[0]
    assert started.returncode == 0, output
    remote_run = RunFolder(machines.home_of(NAME) / "runs" / output.strip().splitlines()[-1])
    first = open_window()
    follow_newest_run(first, qtbot)
    store = first.workspace.session
    assert machine_of(store.run) == NAME
    assert f"This run is on {NAME}" in first.workspace.run.header.remote.label.text()
    qtbot.waitUntil(lambda: store.data.step > 10 and store.status.label == "Running")
    first.close()
    second = open_window()
    follow_newest_run(second, qtbot)
    store = second.workspace.session
    qtbot.waitUntil(lambda: "last" in store.data.checkpoints)
    step = store.data.step
    qtbot.waitUntil(lambda: store.data.step > step)
    with qtbot.waitSignal(store.finished) as finished:
        second.acts.stop.trigger()
    assert finished.args == ["stopped"]
    assert remote_run.state() == "stopped"
    remote = second.workspace.run.header.remote
    with qtbot.waitSignal(remote.fetched):
        remote.fetch("checkpoints/last.pt")
    for path in ("checkpoints/last.pt", "events.jsonl"):
        assert (store.run.path / path).read_bytes() == (remote_run.path / path).read_bytes()
    second.close()
    attached = machines.footplate("attach", f"{NAME}:last", "--json")
    assert attached.stdout == remote_run.events_file.read_text()
    fetched = machines.footplate("fetch", f"{NAME}:last", "worker-0.log")
    assert Path(fetched.stdout.strip()).read_bytes() == remote_run.worker_log(0).read_bytes()


def follow_newest_run(window: MainWindow, qtbot: QtBot) -> None:
    """Open the newest run of the remote machine through the dialog, as a user does."""
    window.acts.open_remote.trigger()
    dialog = window.findChild(RemoteRunsDialog)
    qtbot.waitUntil(dialog.open_button.isEnabled)
    with qtbot.waitSignal(window.workspace.followed.followed):
        dialog.open_button.click()
