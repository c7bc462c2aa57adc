"""Reports on supervisors that a signal kills, for example because there isn't enough memory for their imports."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys

import msgspec
import pytest
from pytestqt.qtbot import QtBot

from engine.cli.terminal import FAILED, INTERRUPTED
from engine.contract.events import PhaseChanged
from engine.runs.folder import process_start, run_names
from engine.runs.interruptions import explain_interruption
from engine.system.paths import sample_dataset
from gui.sources.run_session import RunSession
from tests.engine.cli.terminal import command, footplate
from tests.faults.conftest import Follow, Make, StartRun
from tests.support.cases import mark_long_cases
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.skipif(sys.platform != "linux", reason="signals and limits as Linux has them"),
]

TOO_LITTLE_KIB = 3_000_000
"""Address space in KiB that is large enough to load PyTorch's libraries, but not to import PyTorch."""
ANOTHER_BOOT_S = float(1 << 31)
ENDED = "was probably killed (SIGKILL), or its disk is full; supervisor.log contains no error."
EXPECTED = {
    signal.SIGSEGV: "ended early. The end of supervisor.log: Fatal Python error: Segmentation fault",
    signal.SIGKILL: (
        "ended early. The end of supervisor.log: The supervisor was killed by SIGKILL (signal 9); if "
        "nobody sent it, the system was out of memory."
    ),
}


@pytest.mark.parametrize("sent", mark_long_cases(EXPECTED, everyday=[signal.SIGKILL]))
def test_signal_that_ends_supervisor_is_reported(
    job: Make, start_cold: StartRun, qtbot: QtBot, sent: signal.Signals
) -> None:
    run = start_cold(job())
    run.wait_for(PhaseChanged)
    os.kill(run.pid, sent)
    run.wait_for_processes_to_end()
    wait_until(lambda: EXPECTED[sent] in explain_interruption(run.folder), "the word of who started it")
    attached = footplate("attach", run.folder.run_id)
    assert attached.code == INTERRUPTED
    assert f"{run.folder.run_id} was interrupted: its supervisor (pid {run.pid}) {EXPECTED[sent]}" in attached.err
    store = RunSession()
    store.open(run.folder)
    qtbot.waitUntil(lambda: EXPECTED[sent] in store.status.text)
    assert store.status.text.startswith("Interrupted before the first step: its supervisor")
    store.close()


def test_old_supervisor_output_is_no_cause(job: Make, start_cold: StartRun) -> None:
    run = start_cold(job())
    run.wait_for(PhaseChanged)
    supervisor = run.folder.supervisor()
    assert supervisor is not None
    os.kill(run.pid, signal.SIGKILL)
    run.wait_for_processes_to_end()
    log = run.folder.path / "supervisor.log"
    wait_until(lambda: log.stat().st_size > 0, "the word of who started it")
    os.utime(log, (0, 0))
    assert explain_interruption(run.folder).endswith(ENDED)
    run.remove_socket()
    earlier = msgspec.structs.replace(supervisor, start_time=process_start(os.getpid()) + ANOTHER_BOOT_S)
    run.folder.write_supervisor(earlier)
    assert explain_interruption(run.folder) == "the machine shut down or restarted."


@pytest.mark.long
def test_supervisor_without_memory_for_imports_is_reported(follow: Follow) -> None:
    def frugal() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (TOO_LITTLE_KIB << 10, TOO_LITTLE_KIB << 10))

    train = command("train", str(sample_dataset()), "--model", "mnist_cnn", "--devices", "cpu", "--epochs", "1")
    trained = subprocess.run(train, capture_output=True, text=True, timeout=120, check=False, preexec_fn=frugal)
    follow(run_names()[0])
    assert trained.returncode in (FAILED, INTERRUPTED)
    output = trained.stdout + trained.stderr
    assert re.search("Fatal Python error: |PyTorch could not be imported: ", output), output
    assert "the machine shut down" not in output
