"""Limits on the output and the run time of child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.system import children
from engine.system.children import OutputTooLong, kill_after, limit_written_files, run_child
from engine.system.ssh import ssh_command

pytestmark = pytest.mark.timeout(60)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; {code}"]


def test_run_child_returns_output_and_exit_code() -> None:
    done = run_child(python("print(sys.stdin.read() == ''); print('no', file=sys.stderr); sys.exit(3)"), timeout_s=30)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"True\n", b"no\n")


def test_run_child_uses_folder_and_environment(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ.get('NAME'), os.environ.get('HOME'))"
    done = run_child(python(code), timeout_s=30, env={"NAME": "value"}, cwd=str(tmp_path))
    assert done.stdout.decode().split() == [str(tmp_path), "value", "None"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_limit_on_written_files_is_an_error_not_a_signal(tmp_path: Path) -> None:
    command = ["dd", "if=/dev/zero", f"of={tmp_path / 'file'}", "bs=1000", "count=1"]
    done = subprocess.run(command, preexec_fn=partial(limit_written_files, 100), capture_output=True, check=False)
    assert (done.returncode, (tmp_path / "file").stat().st_size) == (1, 100)


@pytest.mark.parametrize(
    "code",
    [
        "[sys.stdout.write('x' * 65536) for _ in iter(int, 1)]",
        "import time; sys.stderr.write('x' * 65536); time.sleep(50)",
    ],
)
def test_run_child_ends_too_long_output(code: str) -> None:
    with pytest.raises(OutputTooLong):
        run_child(python(code), timeout_s=20, at_most=1 << 15)


def test_run_child_ends_silent_process_and_ignores_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(children, "_JOIN_S", 0.1)
    pid = tmp_path / "pid"
    child = "subprocess.Popen(['sleep', '50']).pid"
    code = f"import pathlib, subprocess, time; pathlib.Path({str(pid)!r}).write_text(str({child})); time.sleep(50)"
    started = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        run_child(python(code), timeout_s=1.0)
    assert time.monotonic() - started < 5
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_process_that_was_fast_enough_may_continue() -> None:
    killed, others = threading.Event(), set(threading.enumerate())
    with kill_after(SimpleNamespace(kill=killed.set), 0.5):  # type: ignore[arg-type]
        [timer] = set(threading.enumerate()) - others
    timer.join()
    assert not killed.is_set()


@pytest.mark.parametrize("timeout_s", [None, 4.0])
@pytest.mark.skipif(sys.platform == "win32", reason="on Windows, the end of the output is unknown")
def test_run_child_does_not_wait_for_children_of_exited_process(timeout_s: float | None) -> None:
    code = "import subprocess; print('x' * 60000, flush=True); print(subprocess.Popen(['sleep', '50']).pid)"
    started = time.monotonic()
    done = run_child(python(code), timeout_s=timeout_s)
    assert time.monotonic() - started < 4
    first, pid = done.stdout.split()
    os.kill(int(pid), signal.SIGKILL)
    assert (done.returncode, len(first)) == (0, 60000)


def test_ssh_takes_no_destination_for_an_option() -> None:
    command = ssh_command("-oProxyCommand=touch /tmp/x", ["echo", "a b"])
    assert command[command.index("--") + 1 :] == ["-oProxyCommand=touch /tmp/x", "echo", "'a b'"]
