"""Runs whose processes are killed, suspended or terminated at random moments. Nothing may be lost or left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import psutil
import pytest

from engine.cli.terminal import BAD_REQUEST
from engine.contract.events import CheckpointSaved, Event, Planned, Restarting, RunFinished
from engine.runs.folder import START_GRACE_S, list_runs
from engine.training.checkpointing.checkpoint_files import verify_checkpoint
from tests.engine.cli.terminal import command
from tests.faults.conftest import Make, StartRun
from tests.faults.real_runs import RealRun, assert_same_checkpoints, is_alive, kill
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.attacks, pytest.mark.faults]

DAILY, LONG = 3, 320
"""Number of signals in the daily test, and in the long tests together."""
FROZEN_S = 0.3

Hit = Callable[["AttackedRun"], bool]
"""Function that attacks a run. It returns False if the attack wasn't possible."""


class AttackedRun:
    """Run under attack, with a terminal that follows it, and the random generator that selects the attacks."""

    def __init__(self, run: RealRun, random: Random) -> None:
        self.run, self.random = run, random
        self._terminals = ExitStack()
        self.terminal = self._follow()

    def _follow(self) -> subprocess.Popen[bytes]:
        arguments = command("attach", self.run.folder.run_id)
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self._terminals.enter_context(process)

    def restart_terminal(self) -> None:
        """Start a new terminal that follows the run if the previous terminal has exited."""
        if self.terminal.poll() is not None:
            self.terminal = self._follow()

    def choose_process(self, processes: list[psutil.Process]) -> psutil.Process | None:
        return self.random.choice(sorted(processes, key=lambda process: process.pid)) if processes else None

    def close(self) -> None:
        self.terminal.kill()
        self._terminals.close()


def kill_the_supervisor(attacked: AttackedRun) -> bool:
    kill(attacked.run.pid)
    return resume_unless_completed(attacked.run)


def kill_all(attacked: AttackedRun) -> bool:
    attacked.run.kill_all()
    return resume_unless_completed(attacked.run)


def terminate_supervisor(attacked: AttackedRun) -> bool:
    """Terminate the supervisor with SIGTERM and resume the run.

    Returns False, without resuming, if the supervisor had already exited or the run has completed.
    """
    try:
        os.kill(attacked.run.pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    attacked.run.wait_for_processes_to_end()
    return resume_unless_completed(attacked.run)


def resume_unless_completed(run: RealRun) -> bool:
    """Check that the processes of an ended run exit, and that its last checkpoint is intact. Then resume it.

    Returns False, without resuming it, if the run has completed.
    """
    run.assert_processes_end()
    last = run.logged[-1] if run.logged else None
    outcome = last.outcome if isinstance(last, RunFinished) else "interrupted"
    if outcome == "completed":
        return False
    if run.saved:
        assert verify_checkpoint(run.last)
    if run.folder.supervisor() is None:  # otherwise the run would count as starting for a while
        long_ago = time.time() - START_GRACE_S
        os.utime(run.folder.job_file, (long_ago, long_ago))
    assert run.folder.state() == outcome in ("interrupted", "stopped")
    run.resume()
    return True


def kill_one_rank(attacked: AttackedRun) -> bool:
    ranks = sorted(attacked.run.workers())
    return bool(ranks) and signal_workers(attacked.run, [attacked.random.choice(ranks)], signal.SIGKILL)


def kill_every_rank(attacked: AttackedRun) -> bool:
    return signal_workers(attacked.run, sorted(attacked.run.workers()), signal.SIGKILL)


def terminate_rank(attacked: AttackedRun) -> bool:
    """Terminate a random rank with SIGTERM. Return False if no rank is running."""
    ranks = sorted(attacked.run.workers())
    return bool(ranks) and signal_workers(attacked.run, [attacked.random.choice(ranks)], signal.SIGTERM)


def signal_workers(run: RealRun, ranks: list[int], number: signal.Signals) -> bool:
    """Send signal `number` to the workers of `ranks`. Return False if one of them isn't running.

    Check that the run restarts and reports one of these ranks as the cause, unless the run has finished.
    """
    workers = run.workers()
    if not ranks or not set(ranks) <= set(workers):
        return False
    before = run.last_n
    for rank in ranks:
        if is_alive(workers[rank]):
            os.kill(workers[rank].pid, number)
    events: list[Event] = []

    def has_reacted() -> bool:
        events[:] = [event for event in run.logged if event.n > before and isinstance(event, Restarting | RunFinished)]
        return bool(events)

    wait_until(has_reacted, "what becomes of the run")
    if isinstance(events[0], Restarting):
        assert events[0].rank in ranks
        assert f"was killed by {number.name}" in events[0].cause
    return True


def kill_helper(attacked: AttackedRun) -> bool:
    """Kill a process of the run that is neither supervisor nor worker, such as the sampler.

    Returns False if the run completes before there is such a process.
    """
    run = attacked.run
    found: list[psutil.Process] = []

    def has_workers_or_ended() -> bool:
        pids = {run.pid, *(worker.pid for worker in run.workers().values())}
        found[:] = [process for process in run.processes() if process.pid not in pids]
        return bool(found) or has_completed(run)

    wait_until(has_workers_or_ended, "a helper, or the end")
    helper = attacked.choose_process(found)
    if helper is None:
        return False
    kill(helper.pid)
    return True


def kill_the_terminal(attacked: AttackedRun) -> bool:
    attacked.terminal.kill()
    attacked.terminal.wait()
    return True


def suspend_for_a_while(attacked: AttackedRun) -> bool:
    """Suspend a random process of the run, or its terminal, for at most `FROZEN_S` seconds.

    Returns False if the process has exited.
    """
    frozen = attacked.choose_process([*attacked.run.processes(), psutil.Process(attacked.terminal.pid)])
    if frozen is None:
        return False
    try:
        frozen.suspend()
        wait_for_completion(attacked.run, attacked.random.uniform(0.0, FROZEN_S))
        frozen.resume()
    except psutil.NoSuchProcess:
        return False
    return True


KILLS: tuple[Hit, ...] = (
    kill_the_supervisor, kill_all, kill_one_rank, kill_every_rank, kill_helper, kill_the_terminal,
)  # fmt: skip
OTHERS: tuple[Hit, ...] = (terminate_supervisor, terminate_rank, suspend_for_a_while)


@contextmanager
def attacked(run: RealRun, random: Random) -> Iterator[AttackedRun]:
    one = AttackedRun(run, random)
    try:
        yield one
    finally:
        one.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("strategy", "cpus", "epochs", "hits", "seed"),
    [
        ("single", 1, 8, DAILY, 311),
        pytest.param("single", 1, 20, LONG // 2, 160, marks=pytest.mark.long),
        pytest.param("ddp", 2, 20, LONG // 2, 160, marks=pytest.mark.long),
    ],
)
def test_runs_survive_random_signals(
    job: Make,
    start_run: StartRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    strategy: str,
    cpus: int,
    epochs: int,
    hits: int,
    seed: int,
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    shared_before = set(Path("/dev/shm").iterdir())
    asked = job(strategy, cpus, epochs=epochs, checkpoint_steps=3, restarts=1000)
    uninterrupted = start_run(asked).completed()
    longest_s = uninterrupted.list_events(RunFinished)[0].seconds / 2  # between two attacks
    random = Random(seed)
    done: Counter[str] = Counter()
    while done.total() < hits:
        run = start_run(asked)
        with attacked(run, random) as one:
            while done.total() < hits and not wait_for_completion(run, random.uniform(0.0, longest_s)):
                one.restart_terminal()
                hit = random.choice(random.choices((KILLS, OTHERS), (5, 2))[0])
                done[hit.__name__] += hit(one)
        assert wait_for_completion(run, 4 * PATIENCE_S), run.logs()
        run.wait_for_processes_to_end()
        assert run.folder.state() == "completed", run.logs()
        assert_no_checkpoint_was_lost(run)
        assert list(run.folder.path.rglob("*.part")) == []
        assert_same_checkpoints(run.final_checkpoints, uninterrupted.final_checkpoints)
    print(dict(done))  # visible with -s
    assert list(temporary.iterdir()) == []
    # Other programs may use shared memory for a moment.
    wait_until(lambda: set(Path("/dev/shm").iterdir()) <= shared_before, "shared memory to be given back")
    if hits > DAILY:
        assert set(done) == {hit.__name__ for hit in (*KILLS, *OTHERS)}
        assert sum(done[hit.__name__] for hit in KILLS) >= hits * 2 // 3


def has_completed(run: RealRun) -> bool:
    return any(event.outcome == "completed" for event in run.list_events(RunFinished))


def wait_for_completion(run: RealRun, seconds: float) -> bool:
    """Wait until the run completes, at most for `seconds`. Return True if it has completed."""
    deadline = time.monotonic() + seconds
    while not has_completed(run):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def assert_no_checkpoint_was_lost(run: RealRun) -> None:
    """Check that no execution resumed from a checkpoint older than the newest one that was reported before."""
    saved = 0
    for event in run.logged:
        if isinstance(event, CheckpointSaved) and event.kind == "last":
            saved = max(saved, event.step)
        elif isinstance(event, Planned):
            assert event.from_step >= saved


def test_killed_inspector_is_reported_and_starts_no_run(images: Path) -> None:
    arguments = command("train", str(images), "--model", "mnist_cnn", "--epochs", "1", "--devices", "cpu")
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as terminal:
        inspectors: list[psutil.Process] = []

        def has_run() -> bool:
            inspectors[:] = [one for one in psutil.Process(terminal.pid).children() if "engine.data" in one.cmdline()]
            return bool(inspectors)

        wait_until(has_run, "the inspector")
        inspectors[0].kill()
        _, output = terminal.communicate(timeout=120)
    assert "The folder could not be inspected: it was killed by SIGKILL (signal 9)" in output
    assert "Try again" in output
    assert terminal.returncode == BAD_REQUEST
    assert list_runs() == []
