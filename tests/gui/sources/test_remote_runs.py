"""Remote runs, with real processes on both ends of a replacement for ssh."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QProcess
from pytestqt.qtbot import QtBot

from engine.contract.events import LogLine, RunFinished
from engine.contract.hosts import Host, put_host
from engine.contract.nodes import FetchProgress, file_sha256
from engine.runs.index import machine_of, mirror_folder
from engine.runs.resume import job_to_resume
from gui.sources.remote_runs import FileFetch, RunFollower, list_remote_files, list_remote_runs
from gui.sources.run_session import RunSession
from tests.gui.conftest import FakeSsh
from tests.gui.sources.written_runs import append_events, supervise_here, write_run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-in for ssh is a shell script")


@pytest.fixture
def followed(ssh: FakeSsh, qtbot: QtBot) -> Iterator[RunFollower]:
    put_host(Host(name="ws1"))
    created = RunFollower()
    yield created
    created.close()


def test_followed_run_survives_lost_connection(followed: RunFollower, ssh: FakeSsh, qtbot: QtBot) -> None:
    run = supervise_here(write_run(outcome=None))
    with qtbot.waitSignal(followed.followed) as found:
        followed.follow("ws1", "last")
    (followed_run,) = found.args
    assert followed.run is followed_run
    assert followed_run.path == mirror_folder("ws1", run.run_id).path
    assert machine_of(followed_run) == "ws1"
    assert followed_run.events_file.read_bytes() == run.events_file.read_bytes()
    session = RunSession()
    session.open(followed_run)
    qtbot.waitUntil(lambda: session.status.label == "Running" and not session.loading)
    append_events(run, LogLine(text="first"))
    qtbot.waitUntil(lambda: session.data.lines[-1].text == "first")
    ssh.fail("ws1", "ssh: connect to host ws1 port 22: No route to host")
    os.kill(ssh.pid("ws1"), signal.SIGKILL)
    qtbot.waitUntil(lambda: "no route to host" in session.status.text)
    append_events(run, LogLine(text="second"))
    ssh.recovers("ws1")
    qtbot.waitUntil(lambda: session.data.lines[-1].text == "second")
    qtbot.waitUntil(lambda: "no route" not in session.status.text)
    with qtbot.waitSignal(session.finished):
        append_events(run, RunFinished(outcome="completed", seconds=1.0, best={}))
        run.supervisor_file.unlink()
    session.close()
    followed.close()
    assert followed.run is None
    assert followed_run.state() == "completed"
    assert followed_run.events_file.read_bytes() == run.events_file.read_bytes()
    job, [problem] = job_to_resume(followed_run, {})
    assert job is None
    assert problem.message.endswith("is on ws1, and can't be resumed from here.")


@pytest.mark.parametrize("run_id", ["", ".", "..", "../x", "a/b", "a\0b"])
def test_mirror_folder_rejects_invalid_run_id(run_id: str) -> None:
    with pytest.raises(ValueError, match="not the id of a run"):
        mirror_folder("ws1", run_id)


def test_followed_run_reports_unreachable_host(
    followed: RunFollower, ssh: FakeSsh, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    with qtbot.waitSignal(followed.failed) as unknown:
        followed.follow("ws1", "first")
        followed.follow("ws1", "last")  # instead of the first
    assert unknown.args == ["ws1: there is no run “last”."]
    ssh.fail("ws1", "ssh: connect to host ws1 port 22: Connection refused")
    with qtbot.waitSignal(followed.failed) as refused:
        followed.follow("ws1", "last")
    assert "refused the connection" in refused.args[0]
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with qtbot.waitSignal(followed.failed) as silent:
        followed.follow("ws1", "last")
    assert silent.args == ["ws1: last can't be followed."]
    qtbot.waitUntil(lambda: not followed.findChildren(QProcess))


def test_followed_run_without_supervisor_is_interrupted(followed: RunFollower, qtbot: QtBot) -> None:
    run = supervise_here(write_run(outcome=None))
    os.utime(run.job_file, (0, 0))  # otherwise a run without a supervisor counts as starting
    with qtbot.waitSignal(followed.followed) as found:
        followed.follow("ws1", "last")
    session = RunSession()
    session.open(*found.args)
    qtbot.waitUntil(lambda: session.status.label == "Running")
    run.supervisor_file.unlink()
    qtbot.waitUntil(lambda: "its supervisor on ws1 ended" in session.status.text)
    assert session.status.label == "Interrupted"
    session.close()
    (process,) = followed.findChildren(QProcess)
    with qtbot.waitSignal(followed.failed) as ended:
        process.kill()
    assert ended.args == ["Following the run has ended unexpectedly. Open it again."]


def test_file_fetch_transfers_missing_bytes(followed: RunFollower, ssh: FakeSsh, qtbot: QtBot) -> None:
    run = write_run()
    best = run.checkpoints / "best.pt"
    best.write_bytes(os.urandom(5 << 20))
    put_host(Host(name="tower", destination="ws1"))
    ssh.fail("tower", "ssh: Could not resolve hostname tower")
    assert [each.run_id for each in list_remote_runs("tower")] == [run.run_id]
    assert [(each.path, each.size_bytes) for each in list_remote_files("ws1", run.run_id)] == [
        ("checkpoints/best.pt", 5 << 20)
    ]
    target = mirror_folder("ws1", run.run_id).checkpoints / "best.pt"
    target.parent.mkdir(parents=True)
    partial = target.with_name(f".best.pt.{file_sha256(best)[:16]}.part")
    partial.write_bytes(best.read_bytes()[: 4 << 20])
    other = target.with_name(".best.pt.0123456789abcdef.part")
    other.write_bytes(b"older content")
    fetch, progress = FileFetch(), list[FetchProgress]()
    fetch.progress.connect(progress.append)
    with qtbot.waitSignal(fetch.done) as done:
        fetch.start("ws1", "last", "checkpoints/best.pt")
    assert done.args == [str(target)]
    assert target.read_bytes() == best.read_bytes()
    assert all(each.done_bytes > 4 << 20 for each in progress)
    assert not partial.exists()
    assert not other.exists()
    partial.write_bytes(bytes(5 << 20))
    with qtbot.waitSignal(fetch.refused) as refused:
        fetch.start("ws1", "last", "checkpoints/best.pt")
    assert "did not arrive as it was sent" in refused.args[0]
    with qtbot.waitSignal(fetch.refused) as outside:
        fetch.start("ws1", "last", "../../hosts.toml")
    assert "is not a file of the run's folder" in outside.args[0]
    shutil.rmtree(target.parent)
    target.parent.write_text("a file")
    with qtbot.waitSignal(fetch.refused) as refused:
        fetch.start("ws1", "last", "checkpoints/best.pt")
    assert "Not a directory" in refused.args[0]
