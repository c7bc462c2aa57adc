"""``footplate queue``: the line, and what is done with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.cli import main
from engine.contract.events import Waiting
from engine.contract.job import Job
from engine.runs.folder import RunFolder, create_run
from engine.runs.notes import change_notes
from engine.runs.queue import QueueSlot, waiting
from engine.system import paths
from tests.engine.cli.terminal import Answer, footplate
from tests.gui.sources.written_runs import write

Stand = Callable[..., RunFolder]
Ask = Callable[..., Answer]


@pytest.fixture
def stand() -> Iterator[Stand]:
    """Makes a run of that name which stands in line; its supervisor is this process."""
    slots: list[QueueSlot] = []

    def stand_in_line(name: str, *devices: str) -> RunFolder:
        job = Job.from_fields(name=name, devices=devices or ("cpu",))
        run = create_run(job)
        slots.append(QueueSlot(run, job))
        slots[-1].poll()
        return run

    yield stand_in_line
    for slot in slots:
        slot.close()


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Gives a command to the command line in this process."""

    def answered(*words: str) -> Answer:
        code = main(words)
        return Answer(code, *capsys.readouterr())

    return answered


def order() -> list[str]:
    return [ticket.run_id for ticket in waiting()]


def test_that_nobody_in_line_is_told(stand: Stand, ask: Ask) -> None:
    stand("runs")
    answer = ask("queue")
    assert (answer.code, answer.out) == (0, "The queue is empty.\n")
    assert ask("queue", "--json").out == ""


def test_that_the_line_is_shown_with_what_each_run_waits_for(stand: Stand, ask: Ask) -> None:
    first, second = stand("first", "cpu"), stand("second", "cpu", "cpu")
    third = stand("third", "GPU-1a2b3c4d-and-so-on", "cpu")
    change_notes(second.path, name="renamed")
    others = ("ada: python (pid 123) uses 12.0 GiB of GPU 0",)
    write(third.events_file, [Waiting(position=2, behind=(first.run_id,), others=others)])
    answer = footplate("queue")
    assert answer.code == 0, answer.err
    head, *rows = answer.out.splitlines()
    assert head.split() == ["PLACE", "RUN", "NAME", "DEVICES", "WAITING", "WAITS", "FOR"]
    assert rows[0].split()[:4] == ["1", second.run_id, "renamed", "cpu"]
    assert rows[0].endswith(f"  {first.run_id}")
    assert rows[1].split()[:4] == ["2", third.run_id, "third", "GPU-1a2b3c4d,cpu"]
    assert rows[1].endswith(f"{first.run_id} and {second.run_id}, {others[0]}")
    told = [json.loads(line) for line in ask("queue", "--json").out.splitlines()]
    assert [(one["position"], one["run_id"], one["name"], one["held"]) for one in told] == [
        (1, second.run_id, "renamed", False),
        (2, third.run_id, "third", False),
    ]
    assert told[1]["behind"] == [first.run_id, second.run_id]
    assert (told[1]["others"], told[1]["folder"]) == (list(others), str(third.path))


def test_that_runs_are_moved_held_and_released(stand: Stand, ask: Ask) -> None:
    stand("first")
    a, b, c = (stand(name).run_id for name in "abc")
    answer = ask("queue", "up", c)
    assert (answer.code, answer.out) == (0, f"{c} is at position 2 of 3.\n")
    assert order() == [a, c, b]
    assert ask("queue", "down", "a").out == f"{a} is at position 2 of 3.\n", "a run's name will do"
    assert order() == [c, a, b]
    assert ask("queue", "first", b).out == f"{b} is at position 1 of 3.\n"
    assert order() == [b, c, a]
    assert ask("queue", "hold", b).out == f"{b} is held until `footplate queue release {b}`.\n"
    rows = ask("queue").out.splitlines()[1:]
    assert "its release, " in rows[0]
    assert rows[2].endswith(f" and {c}"), "it is not behind the held one"
    assert ask("queue", "release", b).out == f"{b} is at position 1 of 3.\n"
    assert not any(ticket.held for ticket in waiting())
    assert ask("queue").out.splitlines()[3].endswith(" and 2 more")


def test_that_a_run_that_does_not_wait_is_a_bad_request(stand: Stand, ask: Ask) -> None:
    run = stand("first")
    for action in ("up", "hold", "remove"):
        answer = ask("queue", action, run.run_id)
        assert answer.code == 2
        assert f"{run.run_id} is not in the queue" in answer.err
    assert "there is no run “nobody”" in ask("queue", "release", "nobody").err


def test_that_a_run_in_line_is_found_wherever_its_folder_is(
    stand: Stand, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand("first")
    run = stand("second")
    monkeypatch.setenv("FOOTPLATE_HOME", str(tmp_path / "another home"))
    answer = ask("queue", "hold", run.run_id)
    assert answer.code == 0, answer.err
    assert waiting()[0].held


def test_that_a_queue_that_cannot_be_is_told(ask: Ask) -> None:
    (paths.runtime_folder() / "queue").write_text("a file")
    answer = ask("queue")
    assert answer.code == 2
    assert "File exists" in answer.err
