"""Line readers: output of child processes in JSON lines, and logs that are long, incomplete or growing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QCoreApplication, QProcess
from pytestqt.qtbot import QtBot

from engine.contract.events import ENCODE, AnyEvent, LogLine
from engine.contract.messages import Done, Progress, Refused
from engine.contract.problems import Problem
from engine.system import paths
from gui.sources.json_lines import Answer, JsonLinesProcess, find_answer
from gui.sources.run_reader import LogReader
from tests.gui.sources.written_runs import write_run

ENDLESS = "print('{\"progress\": 1}', flush=True); import time; time.sleep(600)"


def answer_in(message: dict[str, object]) -> Answer | None:
    if "refusal" in message:
        return Answer(message["refusal"], refused=True)
    return Answer(message["result"]) if "result" in message else None


@pytest.fixture
def child(
    qapp: QCoreApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], JsonLinesProcess]]:
    """Return a function that creates a child process from its Python source."""
    created: list[JsonLinesProcess] = []
    monkeypatch.setattr(paths, "PACKAGES", tmp_path)
    decode = msgspec.json.Decoder(dict[str, object]).decode

    def make(code: str) -> JsonLinesProcess:
        (tmp_path / "odd.py").write_text(code)
        created.append(JsonLinesProcess("odd", "Counting", decode, answer_of=answer_in))
        return created[-1]

    yield make
    for process in created:
        process.close()


def test_process_reports_progress_and_result(child: Callable[[str], JsonLinesProcess], qtbot: QtBot) -> None:
    code = "import json, sys\nprint('{\"progress\": 1}')\nprint(json.dumps({'result': sys.argv[1] + sys.stdin.read()}))"
    process, progress = child(code), list[object]()
    process.progress.connect(progress.append)
    with qtbot.waitSignal(process.done) as done:
        process.run(["a"], b"b", first="start")
    assert done.args == ["ab"]
    assert progress == ["start", {"progress": 1}]
    qtbot.waitUntil(lambda: not process.findChildren(QProcess))


def test_process_reports_refusal(child: Callable[[str], JsonLinesProcess], qtbot: QtBot) -> None:
    process = child("print('{\"refusal\": 3}')")
    with qtbot.waitSignal(process.refused) as refused:
        process.run()
    assert refused.args == [3]


def test_answers_are_results_or_refusals() -> None:
    problem = Problem("epochs", "Too few.")
    messages = (Progress(0.5, "Counting"), Done(answer=3), Refused(problems=(problem,)))
    assert [find_answer(each) for each in messages] == [None, Answer(3), Answer((problem,), refused=True)]


def test_restart_and_cancel_give_no_answer(child: Callable[[str], JsonLinesProcess], qtbot: QtBot) -> None:
    process = child(ENDLESS)
    with qtbot.assertNotEmitted(process.done), qtbot.assertNotEmitted(process.failed):
        process.run()
        process.run()
        assert len(process.findChildren(QProcess)) == 2
        process.cancel()
        assert not process.running
        qtbot.waitUntil(lambda: not process.findChildren(QProcess))


def test_restart_by_a_receiver_ignores_the_rest_of_the_old_output(
    child: Callable[[str], JsonLinesProcess], qtbot: QtBot
) -> None:
    code = 'import sys\nprint(\'{"progress": 1}\\n{"result": "old"}\') if sys.argv[1] == \'old\' else None'
    process = child(code)
    process.progress.connect(lambda _message: process.run(["new"]))
    with qtbot.assertNotEmitted(process.done), qtbot.waitSignal(process.failed) as failed:
        process.run(["old"])
    assert failed.args == ["Counting ended early: exit code 0"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys\nprint('a warning', file=sys.stderr)\nraise SystemExit('no memory')", "ended early: no memory"),
        ("raise SystemExit(7)", "ended early: exit code 7"),
        ("import os\nos.kill(os.getpid(), 9)", "ended early: exit code 9"),
        ("print('[1]')", "invalid output"),
        ("print('x' * (2 << 20))", "invalid output"),
    ],
)
def test_process_without_answer_fails(
    child: Callable[[str], JsonLinesProcess], qtbot: QtBot, code: str, expected: str
) -> None:
    process = child(code)
    states: list[bool] = []
    process.failed.connect(lambda _text: states.append(process.running))
    with qtbot.waitSignal(process.failed) as failed:
        process.run()
    assert states == [False], "it can be started again"
    assert failed.args[0].startswith("Counting ")
    assert expected in failed.args[0]


def test_process_without_answer_fails_after_one_with_an_answer(
    child: Callable[[str], JsonLinesProcess], qtbot: QtBot
) -> None:
    process = child("import sys\nsys.stdout.write(sys.argv[1])")
    with qtbot.waitSignal(process.done):
        process.run(['{"result": 1}\n{"an incomplete'])
    with qtbot.waitSignal(process.failed) as failed, qtbot.assertNotEmitted(process.done):
        process.run(['{"progress": 2}\n'])
    assert failed.args == ["Counting ended early: exit code 0"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
@pytest.mark.parametrize("cleans_up", [True, False])
def test_cancelled_process_cleans_up_if_it_can(
    child: Callable[[str], JsonLinesProcess], tmp_path: Path, qtbot: QtBot, cleans_up: bool
) -> None:
    child(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(pathlib.Path('cleaned').touch()))\n"
        "print('{}', flush=True)\ntime.sleep(600)"
    )
    decode = msgspec.json.Decoder(dict[str, object]).decode
    process = JsonLinesProcess("odd", "Counting", decode, answer_of=answer_in, cleans_up=cleans_up)
    with qtbot.waitSignal(process.progress):
        process.run()
    process.close()
    assert (tmp_path / "cleaned").exists() is cleans_up


def test_missing_python_fails(
    child: Callable[[str], JsonLinesProcess], qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = child("")
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with qtbot.waitSignal(process.failed) as failed:
        process.run()
    assert "/no/such/python" in failed.args[0]
    assert not process.running


def read_all(reader: LogReader) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    while (more := reader.read()) is not None:
        events += more
    return events


def test_log_reader_reads_many_chunks() -> None:
    run = write_run(3000)
    assert run.events_file.stat().st_size > 300_000
    reader = LogReader(run.events_file)
    assert read_all(reader) == list(run.events())
    reader.close()


def test_log_reader_line_longer_than_chunk(tmp_path: Path) -> None:
    line = LogLine(n=1, text="x" * 200_000)
    (tmp_path / "log").write_bytes(ENCODE.encode(line) + b"\n" + ENCODE.encode(LogLine(n=2, text="y")) + b"\n")
    reader = LogReader(tmp_path / "log")
    assert [event.n for event in read_all(reader)] == [1, 2]
    reader.close()


def test_log_reader_waits_for_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    line = ENCODE.encode(LogLine(n=2, text="second")) + b"\n"
    path.write_bytes(ENCODE.encode(LogLine(n=1, text="first")) + b"\n" + line[:20])
    reader = LogReader(path)
    assert [event.n for event in read_all(reader)] == [1]
    with path.open("ab") as stream:
        stream.write(line[20:])
    assert [event.n for event in read_all(reader)] == [2]
    reader.close()


def test_log_reader_skips_unknown_lines(tmp_path: Path) -> None:
    known = [ENCODE.encode(LogLine(n=n, text="known")) for n in (1, 3)]
    (tmp_path / "log").write_bytes(b"\n".join([known[0], b'{"type":"from the future","n":2}', known[1], b""]))
    reader = LogReader(tmp_path / "log")
    assert [event.n for event in read_all(reader)] == [1, 3]
    reader.close()


@pytest.mark.parametrize(
    ("numbers", "plausible"),
    [
        ((1, 9999, 3), [1, 3]),
        ((1, 5, 6), [1, 5, 6]),
        ((1, 9), [1, 9]),
        ((1, 2, 1, 3), [1, 2, 3]),
        ((1, 5, 6, 3), [1, 5, 6]),
    ],
)
def test_log_reader_drops_implausible_numbers(tmp_path: Path, numbers: tuple[int, ...], plausible: list[int]) -> None:
    (tmp_path / "log").write_bytes(b"".join(ENCODE.encode(LogLine(n=n, text="x")) + b"\n" for n in numbers))
    reader = LogReader(tmp_path / "log")
    assert [event.n for event in read_all(reader)] == plausible
    reader.close()


def test_log_reader_continues_after_it_was_closed(tmp_path: Path) -> None:
    path, reader = tmp_path / "log", LogReader(tmp_path / "log")
    for n in (1, 2):
        with path.open("ab") as stream:
            stream.write(ENCODE.encode(LogLine(n=n, text="x")) + b"\n")
        assert [event.n for event in read_all(reader)] == [n]
        reader.close()


def test_log_reader_ends_at_an_endless_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gui.sources.run_reader.MAX_DAMAGED_BYTES", 16)
    path, reader = tmp_path / "log", LogReader(tmp_path / "log")
    path.write_bytes(b"x" * 17)
    assert read_all(reader) == []
    with path.open("ab") as stream:
        stream.write(b"\n" + ENCODE.encode(LogLine(n=1, text="x")) + b"\n")
    assert read_all(reader) == []
    reader.close()


def test_log_reader_missing_log(tmp_path: Path) -> None:
    assert LogReader(tmp_path / "missing").read() is None
