"""Command ``footplate queue``: its list, and its actions for queued runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.cli import main
from engine.contract.events import RunFinished
from engine.contract.job import Job
from engine.contract.protocol import Stop
from engine.runs.folder import RunFolder, create_run
from engine.runs.notes import change_notes
from engine.runs.queue import QueueSlot, list_waiting
from engine.system import paths
from tests.engine.cli.terminal import Answer
from tests.gui.sources.written_runs import supervise_here
from tests.support.served import LocalServer

Enqueue = Callable[..., RunFolder]
RunCommand = Callable[..., Answer]


@pytest.fixture
def enqueue() -> Iterator[Enqueue]:
    """Yield a function that creates a queued run. This process takes the place of the run's supervisor."""
    slots: list[QueueSlot] = []

    def add_to_queue(name: str, *devices: str) -> RunFolder:
        job = Job.from_fields(name=name, devices=devices or ("cpu",))
        run = create_run(job)
        slots.append(QueueSlot(run, job))
        slots[-1].poll()
        return run

    yield add_to_queue
    for slot in slots:
        slot.close()


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Return a function that runs a command in this process, and returns its exit code and output."""

    def run(*arguments: str) -> Answer:
        code = main(arguments)
        return Answer(code, *capsys.readouterr())

    return run


def order() -> list[str]:
    return [ticket.run_id for ticket in list_waiting()]


def test_queue_reports_an_empty_queue(enqueue: Enqueue, run_command: RunCommand) -> None:
    enqueue("runs")
    answer = run_command("queue")
    assert (answer.code, answer.out) == (0, "The queue is empty.\n")
    assert run_command("queue", "--json").out == ""


def test_queue_moves_holds_and_releases(enqueue: Enqueue, run_command: RunCommand) -> None:
    enqueue("first")
    run_a, *others = map(enqueue, "abc")
    a, b, c = (run.run_id for run in (run_a, *others))
    answer = run_command("queue", "up", c)
    assert (answer.code, answer.out) == (0, f"{c} is at position 2 of 3.\n")
    assert order() == [a, c, b]
    assert run_command("queue", "down", "a").out == f"{a} is at position 2 of 3.\n", "a run's name will do"
    assert order() == [c, a, b]
    assert run_command("queue", "first", b).out == f"{b} is at position 1 of 3.\n"
    assert order() == [b, c, a]
    assert run_command("queue", "hold", b).out == f"{b} is held until `footplate queue release {b}`.\n"
    rows = run_command("queue").out.splitlines()[1:]
    assert "its release, " in rows[0]
    assert [row.split()[2] for row in rows] == ["b", "c", "a"]
    change_notes(run_a.path, name="")
    assert run_command("queue").out.splitlines()[3].split()[2] == "–"
    assert run_command("queue", "first", b).out == f"{b} is at position 1 of 3, held.\n"
    assert rows[2].endswith(f" and {c}"), "it is not behind the held one"
    assert run_command("queue", "release", b).out == f"{b} is at position 1 of 3.\n"
    assert not any(ticket.held for ticket in list_waiting())
    assert run_command("queue").out.splitlines()[3].endswith(" and 2 more")


def test_queue_refuses_runs_outside_the_queue(enqueue: Enqueue, run_command: RunCommand) -> None:
    run = enqueue("first")
    for action in ("up", "hold", "remove"):
        answer = run_command("queue", action, run.run_id)
        assert answer.code == 2
        assert f"{run.run_id} is not in the queue" in answer.err
    assert "there is no run “nobody”" in run_command("queue", "release", "nobody").err


def test_release_reports_a_run_that_has_devices(
    enqueue: Enqueue, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = enqueue("first")
    monkeypatch.setattr("engine.runs.queue.release", lambda _run_id: True)
    answer = run_command("queue", "release", run.run_id)
    assert (answer.code, answer.out) == (0, f"{run.run_id} already has its devices.\n")


def test_queue_remove_stops_the_run(enqueue: Enqueue, run_command: RunCommand) -> None:
    enqueue("first")
    run = enqueue("second")
    server = LocalServer(run.path, [])
    supervise_here(run, endpoint=server.server.endpoint.text)

    def serve() -> None:
        try:
            server.poll_until_true(lambda: server.commands, 10)
            server.log.append(RunFinished(outcome="stopped"))
        finally:
            server.close()

    with ThreadPoolExecutor(1) as executor:
        serving = executor.submit(serve)
        answer = run_command("queue", "remove", run.run_id)
        serving.result()
    assert (answer.code, answer.out) == (0, f"{run.run_id} is no longer in the queue; it is stopped.\n")
    assert server.commands == [Stop()]


def test_queue_finds_runs_of_another_home(
    enqueue: Enqueue, run_command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue("first")
    run = enqueue("second")
    monkeypatch.setenv("FOOTPLATE_HOME", str(tmp_path / "another home"))
    answer = run_command("queue", "hold", run.run_id)
    assert answer.code == 0, answer.err
    assert list_waiting()[0].held


def test_queue_reports_an_unusable_folder(run_command: RunCommand) -> None:
    (paths.runtime_folder() / "queue").write_text("a file")
    answer = run_command("queue")
    assert answer.code == 2
    assert "File exists" in answer.err
