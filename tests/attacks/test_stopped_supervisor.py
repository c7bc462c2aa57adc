"""Supervisors that are suspended or unreachable. Clients must get a message, and the window must stay responsive."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.cli.terminal import FAILED
from engine.contract.events import StepMetrics
from engine.contract.protocol import Stop
from engine.runs import connection
from engine.runs.connection import NotRunning, RunConnection
from engine.runs.folder import RunFolder, SupervisorFile, process_start
from gui.sources.run_session import RunSession
from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import ROOT, Start, Supervised, events
from tests.gui.conftest import OFFSCREEN_NOISE
from tests.support.pulse import StallMeter
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.qt_log_ignore(OFFSCREEN_NOISE),
    pytest.mark.skipif(
        sys.platform != "linux", reason="processes are stopped, and the time waited for a core is Linux' own"
    ),
]

MAX_S = 0.9
"""Maximum time in seconds that the GUI thread may block. Waiting for the supervisor's answer would take longer."""
ANSWER_S = 1.0

Suspend = Callable[..., None]


@pytest.fixture
def suspend() -> Iterator[Suspend]:
    """Yield a function that suspends a supervisor until the end of the test.

    If its argument `crowded` is True, it also opens connections until the supervisor's socket accepts no more.
    """
    with ExitStack() as stack:

        def stop(one: Supervised, *, crowded: bool) -> None:
            one.process.send_signal(signal.SIGSTOP)
            stack.callback(one.process.send_signal, signal.SIGCONT)
            supervisor = one.run.supervisor()
            assert supervisor is not None
            while crowded:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                try:
                    waiting.connect(supervisor.endpoint.removeprefix("unix:"))
                except BlockingIOError:
                    return

        yield stop


@pytest.fixture
def store(qtbot: QtBot) -> Iterator[RunSession]:
    run_session = RunSession()
    yield run_session
    run_session.finish()
    run_session.close()


@pytest.mark.parametrize("crowded", [True, False])
def test_stopped_supervisor_never_blocks_window(
    start: Start,
    store: RunSession,
    qtbot: QtBot,
    suspend: Suspend,
    *,
    crowded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", ANSWER_S)
    one = start("forever")
    store.open(one.run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 3)
    suspend(one, crowded=crowded)
    pulse = StallMeter()
    with qtbot.waitSignal(store.message) as blocker:
        store.stop()
    text, kind = blocker.args
    how = "accepts no connections, and so no commands" if crowded else "has not answered for 5 s"
    remedy = f"If it was stopped, `kill -CONT {one.process.pid}` resumes it."
    assert text == f"The supervisor of {one.run.run_id} (pid {one.process.pid}) {how}. {remedy}"
    assert kind == "warning"
    store.close()
    store.open(one.run)
    qtbot.waitUntil(lambda: not store.loading)
    qtbot.wait(200)
    pulse.stop()
    assert pulse.longest_s < MAX_S
    store.stop()
    with qtbot.waitSignal(store.finished) as ended:
        one.process.send_signal(signal.SIGCONT)
    assert ended.args == ["stopped"]
    one.wait()


def test_command_lost_by_full_backlog_is_reported(start: Start, suspend: Suspend) -> None:
    one = start("forever")
    with one.connect() as first:
        assert next(event for event in events(first) if isinstance(event, StepMetrics))
    suspend(one, crowded=True)
    done = footplate("stop", one.run.run_id)
    assert done.code == FAILED
    assert done.out == ""
    assert f"(pid {one.process.pid}) accepts no connections, and so no commands." in done.err
    one.process.send_signal(signal.SIGCONT)
    with one.connect() as again:
        again.send(Stop())
    one.wait()


def test_failed_connection_leaves_no_socket(tmp_path: Path) -> None:
    """Connect to an endpoint whose token is larger than the socket's buffer."""
    run = RunFolder(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pid = os.getpid()
        endpoint = f"tcp:{listener.getsockname()[1]}:{'x' * (8 << 20)}"
        run.write_supervisor(SupervisorFile(pid=pid, start_time=process_start(pid), endpoint=endpoint))
        before = os.listdir("/proc/self/fd")
        with pytest.raises(NotRunning, match="does not listen: timed out") as refused:
            RunConnection(run, timeout_s=0)
        assert os.listdir("/proc/self/fd") == before, refused


@pytest.mark.parametrize("crowded", [False, True])
def test_attach_reports_stopped_supervisor(start: Start, suspend: Suspend, crowded: bool) -> None:
    supervised = start("forever")
    supervised.connect().close()
    suspend(supervised, crowded=crowded)
    command = [sys.executable, str(ROOT / "footplate.py"), "attach", "--json", supervised.run.run_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as attached:
        assert attached.stderr is not None
        assert attached.stdout is not None
        assert f"pid {supervised.process.pid}" in attached.stderr.readline()
        supervised.process.send_signal(signal.SIGCONT)
        with supervised.connect() as connection:
            connection.send(Stop())
        output, _ = attached.communicate(timeout=PATIENCE_S)
    supervised.wait()
    assert output == supervised.run.events_file.read_text()
