"""Clients of a running supervisor that are early, late, slow or hostile."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.contract.events import LogLine, RunFinished, StepMetrics
from engine.contract.protocol import (
    COMMANDS_ONLY,
    ENCODE,
    MAX_COMMAND_BYTES,
    MAX_FRAME_BYTES,
    SERVER_MESSAGE,
    Goodbye,
    Hello,
    Stop,
    Welcome,
)
from engine.runs.connection import NotRunning, RunConnection
from engine.supervisor import server
from engine.supervisor.endpoint import Endpoint, open_endpoint
from engine.supervisor.server import SLOW_BYTES
from tests.engine.supervisor.supervised import Start, Supervised, events, messages
from tests.engine.supervisor.tiny_worker import step_metrics
from tests.support.limits import limit_resource
from tests.support.served import LocalServer
from tests.support.waiting import PATIENCE_S, wait_until


def connect_without_hello(supervised: Supervised) -> socket.socket:
    """Connect to the run without sending anything."""
    wait_until(lambda: supervised.run.supervisor() is not None, "the supervisor")
    content = supervised.run.supervisor()
    assert content is not None
    kind, _, place = content.endpoint.partition(":")
    if kind == "tcp":
        client = socket.create_connection(("127.0.0.1", int(place.partition(":")[0])))
    else:
        client = socket.socket(socket.AF_UNIX)
        client.connect(place)
    client.settimeout(PATIENCE_S)
    return client


def read_last_message(client: socket.socket) -> dict[str, object]:
    """Return the last message that the server sent before it closed the connection."""
    data = b""
    try:
        while chunk := client.recv(65536):
            data += chunk
    except ConnectionResetError:  # the server closed with unread input; its message has arrived
        assert data
    found: dict[str, object] = json.loads(data.rstrip(b"\n").split(b"\n")[-1])
    return found


def stop(supervised: Supervised) -> None:
    with supervised.connect() as connection:
        connection.send(Stop())
        list(messages(connection))
    supervised.wait()


def test_clients_get_every_line_of_the_log_in_order(start: Start) -> None:
    supervised = start("forever")
    with supervised.connect() as early:
        lines: list[bytes] = []
        wait_until(lambda: bool(lines.extend(early.receive_lines())) or len(lines) > 30, "some events")
        with supervised.connect() as late, supervised.connect(from_n=10) as partial:
            late.send(Stop())
            late_events = list(events(late))
            partial_events = list(events(partial))
            wait_until(lambda: bool(lines.extend(early.receive_lines())) or early.closed, "the end")
    logged = supervised.wait()
    assert [event.n for event in late_events] == [event.n for event in logged]
    assert [event.n for event in partial_events] == [event.n for event in logged][9:]
    assert b"\n".join(lines[1:]) + b"\n" == supervised.run.events_file.read_bytes()
    welcome = SERVER_MESSAGE.decode(lines[0])
    assert isinstance(welcome, Welcome)
    assert welcome.run_id == supervised.run.run_id


def test_client_that_connects_at_the_end_gets_run_finished(start: Start) -> None:
    supervised = start("forever")
    with supervised.connect() as early:
        next(event for event in events(early) if isinstance(event, StepMetrics))
    supervisor = psutil.Process(supervised.process.pid)
    workers = [child for child in supervisor.children() if child.name().startswith("footplate-w")]
    supervisor.suspend()
    try:
        for worker in workers:
            worker.kill()
        late = supervised.connect()
    finally:
        supervisor.resume()
    with late:
        logged = list(events(late))
    assert workers
    assert isinstance(logged[-1], RunFinished)
    assert [event.n for event in logged] == [event.n for event in supervised.wait()]


def test_slow_client_misses_only_metrics(start: Start) -> None:
    supervised = start("flood 60000")
    with supervised.connect() as slow, supervised.connect() as quick:
        numbers = []
        for event in events(quick):
            numbers.append(event.n)
            if isinstance(event, LogLine) and event.text == "after step 60000":
                break
        # All events have been sent, and the slow client has read nothing beyond the socket's buffer.
        quick.send(Stop())
        logged = list(events(slow))
    written = supervised.wait()
    assert sum(isinstance(event, StepMetrics) for event in written) == 60000
    assert numbers == sorted(set(numbers))
    numbers = [event.n for event in logged]
    assert numbers == sorted(set(numbers))
    assert len(logged) < len(written), "far behind it is spared metrics"
    for kind in (LogLine, RunFinished):
        assert [e.n for e in logged if isinstance(e, kind)] == [e.n for e in written if isinstance(e, kind)]


@pytest.mark.long
def test_client_that_never_reads_does_not_delay_the_end(start: Start) -> None:
    supervised = start("flood 60000")
    with supervised.connect():
        wait_until(lambda: len(supervised.run.events_file.read_bytes()) > 5_000_000, "the flood")
        with supervised.connect(from_n=10**9) as other:
            other.send(Stop())
            logged = supervised.wait()
    assert isinstance(logged[-1], RunFinished)
    assert supervised.process.returncode == 0


HELLO = ENCODE.encode(Hello()) + b"\n"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[LocalServer]:
    one = LocalServer(tmp_path, ())
    yield one
    one.close()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"GET / HTTP/1.1\n", "invalid message"),
        (b"\xff\xfe\x00\n", "invalid message"),
        (b"[" * 4_000 + b"\n", "invalid message"),
        (b'{"type":"stop"}\n', "must be a hello"),
        (b'{"type":"hello","protocol":99}\n', "protocol version 99"),
        (b'{"type":"hello","color":"red"}\n', "color"),
        (b'{"type":"hello","from_n":"one"}\n', "from_n"),
        (HELLO + HELLO, "second hello"),
        (HELLO + b'{"type":"explode"}\n', "explode"),
        (b"x" * (MAX_COMMAND_BYTES + 1), "longer than"),
        (b'{"type":"hello","token":"guess"}\n', "wrong token"),
    ],
    ids=lambda value: str(value[:40]),  # the name of a test is put into its environment, which has a limited length
)
def test_invalid_client_gets_the_reason(served: LocalServer, message: bytes, reason: str) -> None:
    good, _ = served.connect()
    bad = served.open_client(message)
    received = served.receive(bad, lambda data: b'"goodbye"' in data)
    answer = SERVER_MESSAGE.decode(received.splitlines()[-1])
    assert isinstance(answer, Goodbye)
    assert reason in answer.reason
    served.log.append(LogLine(text="still here"))
    served.receive(good, lambda data: b"still here" in data)


def test_goodbye_sets_the_reason_of_the_connection(start: Start) -> None:
    supervised = start("forever")
    with supervised.connect() as connection:
        connection.send(Hello())
        assert any(isinstance(message, Goodbye) for message in messages(connection))
        assert "second hello" in connection.reason
    stop(supervised)


def test_connecting_to_an_ended_run_fails(start: Start, tmp_path: Path) -> None:
    supervised = start("train 1")
    supervised.wait()
    with pytest.raises(NotRunning, match="has ended"):
        RunConnection(supervised.run)
    supervised.run.supervisor_file.unlink()
    with pytest.raises(NotRunning, match=r"is not running \(yet\)"):
        RunConnection(supervised.run)


def test_late_client_gets_the_complete_history(served: LocalServer, tmp_path: Path) -> None:
    """Use a history of events that may be dropped and that is much longer than `SLOW_BYTES`."""
    for number in range(1, 4001):
        served.log.append(step_metrics(number))
    assert served.log.end > 2 * SLOW_BYTES
    client = served.open_client(HELLO)
    received = served.receive(client, lambda data: data.count(b"\n") == 1 + 4000)
    assert received.partition(b"\n")[2] == (tmp_path / "events.jsonl").read_bytes()
    leaving, _ = served.connect()
    assert not served.server.is_drained
    leaving.close()
    served.poll_until_true(lambda: served.server.is_drained)


def test_client_without_hello_is_disconnected(served: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELLO_S", "GOODBYE_S"):
        monkeypatch.setattr(server, name, 0.05)
    silent, (greeted, _) = served.open_client(), served.connect()
    served.poll_for(0.2)
    assert SERVER_MESSAGE.decode(silent.recv(4096).splitlines()[-1]).__class__ is Goodbye
    with pytest.raises(BrokenPipeError):
        silent.send(b"x")
    served.log.append(LogLine(text="still here"))
    served.receive(greeted, lambda data: b"still here" in data)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_clients_are_accepted_once_descriptors_are_free(
    served: LocalServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import resource

    def refuse_client(pause_s: float) -> socket.socket:
        """Let a client connect while no descriptor is free, after which the server accepts none for `pause_s`."""
        monkeypatch.setattr(server, "NO_FILE_S", pause_s)
        client = served.open_client(HELLO)
        lowest = os.dup(0)
        os.close(lowest)
        with limit_resource(resource.RLIMIT_NOFILE, lowest):
            served.poll_for(0.1)
            with pytest.raises(BlockingIOError):
                client.recv(1)
        return client

    served.receive(refuse_client(0.02), lambda data: b'"welcome"' in data)
    refuse_client(100.0)
    served.server.listen(open_endpoint(tmp_path / "other"))
    refuse_client(100.0)  # the server is closed during this pause


def test_clients_of_other_users_are_refused(served: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endpoint, "admits", lambda _endpoint, _peer: False)
    assert served.connect()[1] == Goodbye(reason="this run belongs to another user")


def test_client_that_only_sends_commands_gets_no_events(served: LocalServer) -> None:
    (control, _), (reader, _) = served.connect(from_n=COMMANDS_ONLY), served.connect()
    served.log.append(LogLine(text="news"))
    served.receive(reader, lambda data: b"news" in data)
    served.poll_for(0.02)
    assert control.recv(4096).count(b"\n") == 1


def test_client_that_reads_nothing_more_can_still_send_commands(served: LocalServer) -> None:
    client = served.open_client()
    client.shutdown(socket.SHUT_RD)
    client.sendall(HELLO)
    served.poll_for(0.02)
    served.log.append(LogLine(text="news"))
    client.sendall(ENCODE.encode(Stop()) + b"\n")
    served.poll_until_true(lambda: served.commands == [Stop()])
    assert served.server.is_drained
    client.close()
    served.poll_for(0.02)


def test_commands_after_an_invalid_message_are_ignored(served: LocalServer) -> None:
    client = served.open_client(HELLO + HELLO + ENCODE.encode(Stop()) + b"\n")
    served.receive(client, lambda data: b'"goodbye"' in data)
    assert served.commands == []


def test_line_that_is_too_long_for_a_message_is_left_out(served: LocalServer) -> None:
    for text in ("short", "x" * MAX_FRAME_BYTES, "last"):
        served.log.append(LogLine(text=text))
    client = served.open_client(HELLO)
    received = served.receive(client, lambda data: b"last" in data and data.endswith(b"\n"))
    assert [SERVER_MESSAGE.decode(line).n for line in received.splitlines()[1:]] == [1, 3]  # type: ignore[union-attr]


def test_refused_clients_get_the_reason_until_they_are_accepted(served: LocalServer) -> None:
    client, _ = served.connect()
    served.server.refuse_clients("busy")
    served.receive(client, lambda data: b'"goodbye","reason":"busy"' in data)
    assert served.connect()[1] == Goodbye(reason="busy")
    served.server.accept_clients()
    assert isinstance(served.connect()[1], Welcome)


def test_limits_drop_the_oldest_or_slowest_client(served: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MAX_UNAUTHENTICATED": 2, "MAX_CONTROLS": 2, "MAX_CLIENTS": 2, "STALLED_S": 0.0}.items():
        monkeypatch.setattr(server, name, value)
    silent = [served.open_client() for _ in range(3)]
    served.poll_until_true(lambda: select.select(silent, [], [], 0)[0] == silent[:1])
    assert silent[0].recv(1) == b""
    controls = [served.connect(from_n=COMMANDS_ONLY)[0] for _ in range(3)]
    served.receive(controls[0], lambda data: b'"goodbye"' in data)
    quick, slow = (served.connect()[0] for _ in range(2))
    for number in range(1, 400):
        served.log.append(LogLine(text=str(number).ljust(5000)))
    served.receive(quick, lambda data: data.count(b"\n") == 400)
    assert isinstance(served.connect()[1], Welcome)
    lines = served.receive(slow, lambda data: b'"goodbye"' in data and data.endswith(b"\n")).splitlines()
    messages = [SERVER_MESSAGE.decode(line) for line in lines]
    assert isinstance(messages[-1], Goodbye)
    assert [event.n for event in messages[1:-1] if isinstance(event, LogLine)] == list(range(1, len(lines) - 1))
