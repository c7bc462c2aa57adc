"""Further starts of Footplate. The running window of the same user, home and display must handle them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtNetwork import QLocalSocket
from pytestqt.qtbot import QtBot

from engine.contract.job import Job, save_job
from gui import main_window
from gui.pages import RUNS
from gui.single_instance import MAX_BYTES, OpenRequest, SingleInstance, find_socket_path
from gui.sources.background import Background
from tests.support.nobody import run_as_nobody
from tests.support.widgets import HoldCalls, OpenWindow

ROOT = Path(__file__).parents[2]
LISTENER = """
import time
from gui.single_instance import OpenRequest, SingleInstance
instance = SingleInstance()
assert not instance.forward_request(OpenRequest())
instance.listen()
print("open", flush=True)
time.sleep(600)
"""
WINDOW = """
import sys
from gui import app
from gui.form.panel import JobPanel
from gui.main_window import MainWindow
from gui.sources.launcher import Launcher
Launcher.preload = lambda launcher: None
set_dataset = JobPanel.set_dataset
def shown(form, folder):
    set_dataset(form, folder)
    print(folder, form.window().isVisible(), flush=True)
JobPanel.set_dataset = shown
MainWindow.paintEvent = lambda window, event: None
show = MainWindow.show
def complete(window):
    show(window)
    window.completed.connect(lambda: print("open", flush=True))
    window.add_pages()
MainWindow.show = complete
sys.exit(app.main(*sys.argv[1:]))
"""


@pytest.fixture
def first(qtbot: QtBot) -> Iterator[SingleInstance]:
    """Yield the lock that the process with the window holds."""
    instance = SingleInstance()
    assert not instance.forward_request(OpenRequest())
    instance.listen()
    yield instance
    instance.close()


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def read_line(window: subprocess.Popen[str]) -> str:
    return window.stdout.readline().strip()


def test_second_start_hands_over_its_folder(images: Path) -> None:
    with start(LISTENER) as killed:
        assert read_line(killed) == "open"
        killed.kill()
    assert find_socket_path().is_socket()  # the socket is left over
    with start(WINDOW, str(images)) as window:
        assert {read_line(window), read_line(window)} == {"open", f"{images} True"}
        second = [sys.executable, str(ROOT / "footplate.py"), "."]
        done = subprocess.run(second, cwd=images, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert read_line(window) == f"{images} True"
        window.terminate()
        assert window.wait(120) == 0
    assert not find_socket_path().exists()


def test_garbage_disconnects_its_client_only(first: SingleInstance, qtbot: QtBot) -> None:
    for garbage in (b"{}x\n", b'{"path": 3}\n', b'{"run": "rm"}\n', b"x" * (MAX_BYTES + 1)):
        client = QLocalSocket()
        client.connectToServer(str(find_socket_path()))
        with qtbot.waitSignal(client.disconnected), qtbot.assertNotEmitted(first.requested):
            client.write(garbage)
    code = (
        "from gui.single_instance import *\n"
        "import sys\n"
        "sys.exit(not SingleInstance().forward_request(OpenRequest(sys.argv[1], 'token')))"
    )
    with (
        subprocess.Popen([sys.executable, "-c", code, "/with\nbreak"], cwd=ROOT) as second,
        qtbot.waitSignal(first.requested) as received,
    ):
        pass
    assert received.args == [OpenRequest("/with\nbreak", "token")]
    assert second.returncode == 0


def test_lock_is_per_home_display_and_user(
    first: SingleInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = find_socket_path()
    assert stat.S_IMODE(mine.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(mine.stat().st_mode) & 0o077 == 0
    for variable, value in (
        ("FOOTPLATE_HOME", str(tmp_path / "another")),
        ("WAYLAND_DISPLAY", "wayland-7"),
        ("DISPLAY", ":7"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert find_socket_path() != mine
    connection_attempt = f"""
knocking = socket.socket(socket.AF_UNIX)
try:
    knocking.connect({str(mine)!r})
    print(json.dumps("in"))
except PermissionError:
    print(json.dumps("out"))
"""
    assert run_as_nobody(connection_attempt) == "out"


def test_unresponsive_window_is_reported(first: SingleInstance) -> None:
    with pytest.raises(TimeoutError, match="does not respond"):  # this thread would have to respond
        SingleInstance().forward_request(OpenRequest(), timeout_s=0.2)


def test_instance_without_the_lock_does_not_listen(first: SingleInstance) -> None:
    first.close()
    assert not find_socket_path().exists()
    second = SingleInstance()
    second.listen()
    assert not find_socket_path().exists()
    assert not second.forward_request(OpenRequest())
    second.close()


def test_job_file_opens_without_consent(open_window: OpenWindow, images: Path, tmp_path: Path, qtbot: QtBot) -> None:
    window = open_window()
    window.header.show_page(RUNS)
    file = tmp_path / "mine.job.toml"
    save_job(
        Job.from_fields(
            dataset=str(images), epochs=7, devices=("cpu", "cpu"), model="x.py", model_file_sha256="ab" * 32
        ),
        file,
    )
    window.bring_to_front(str(file))
    qtbot.waitUntil(lambda: window.form.prefill is not None)
    assert window.form.values()["epochs"] == 7
    assert window.form.values()["model_file_sha256"] == ""
    assert window.workspace.devices.selection() == ("cpu", "cpu")
    assert window.form.isVisible()
    assert str(file) in window.job_panel.banner_text.text()
    file.write_text('epochs = "many"\n')
    window.open_paths([str(file)])
    qtbot.waitUntil(lambda: "epochs" in window.message.text().lower())
    window.header.show_page(RUNS)
    window.open_paths([str(tmp_path / "picture.png")])
    qtbot.waitUntil(lambda: "picture.png can't be opened" in window.message.text())
    assert window.acts.page == RUNS


def test_folder_that_was_requested_last_is_opened(
    open_window: OpenWindow, images: Path, tmp_path: Path, qtbot: QtBot, hold_calls: HoldCalls
) -> None:
    window, slow = open_window(), str(tmp_path)
    release = hold_calls(main_window, "read_paths", lambda paths: slow in paths)
    window.open_paths([slow])
    window.open_paths([str(images)])
    qtbot.waitUntil(lambda: window.form.values()["dataset"] == str(images))
    release.set()
    qtbot.waitUntil(lambda: not window.findChildren(Background, options=Qt.FindChildOption.FindDirectChildrenOnly))
    assert window.form.values()["dataset"] == str(images)


def test_folder_named_like_a_command_needs_a_slash(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    environment = os.environ | {"QT_QPA_PLATFORM": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}

    def code(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, str(ROOT / "footplate.py"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert code("runs")[0] == 0
    assert "No display" in code("./runs")[1]
    assert code("./nothing") == (2, "footplate: there is no './nothing'.\n")
