"""Logs that are long, torn, still being written, or of a newer Footplate."""

from __future__ import annotations

from pathlib import Path

from engine.contract.events import ENCODE, AnyEvent, LogLine
from gui.sources.run_reader import LogReader
from tests.gui.sources.written_runs import a_run


def read_all(reader: LogReader) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    while (more := reader.read()) is not None:
        events += more
    return events


def test_log_reader_reads_many_chunks() -> None:
    run = a_run(3000)
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
    whole = ENCODE.encode(LogLine(n=2, text="second")) + b"\n"
    path.write_bytes(ENCODE.encode(LogLine(n=1, text="first")) + b"\n" + whole[:20])
    reader = LogReader(path)
    assert [event.n for event in read_all(reader)] == [1]
    with path.open("ab") as stream:
        stream.write(whole[20:])
    assert [event.n for event in read_all(reader)] == [2]
    reader.close()


def test_log_reader_skips_unknown_lines(tmp_path: Path) -> None:
    known = [ENCODE.encode(LogLine(n=n, text="known")) for n in (1, 3)]
    (tmp_path / "log").write_bytes(b"\n".join([known[0], b'{"type":"from the future","n":2}', known[1], b""]))
    reader = LogReader(tmp_path / "log")
    assert [event.n for event in read_all(reader)] == [1, 3]
    reader.close()


def test_log_reader_missing_log(tmp_path: Path) -> None:
    assert LogReader(tmp_path / "missing").read() is None
