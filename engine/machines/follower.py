"""``python -m engine.machines.follower HOST RUN``: follow a run on another machine through ssh.

The follower writes the run's events to a local copy of the run folder (see `mirror_folder`), and acts as the supervisor
there. Windows and commands read this log and connect as to any run, and their commands are forwarded. While the other
machine is unreachable, clients are notified and the connection is retried. The follower exits when its standard input
is closed. The run continues.
"""

from __future__ import annotations

import os
import selectors
import sys
import time
from contextlib import suppress

from engine.contract.hosts import Host, host
from engine.contract.nodes import (
    FollowResult,
    FromNode,
    LogChunk,
    LogRequest,
    NodeFailed,
    RunCommand,
    RunFound,
    RunLiveness,
    file_sha256,
)
from engine.contract.protocol import ENCODE, Command
from engine.machines.link import START_S, NodeLink, remote_command
from engine.runs.folder import RunFolder, SupervisorFile, process_start
from engine.runs.index import mirror_folder, mirrors_folder
from engine.supervisor import endpoint
from engine.supervisor.event_log import EventLog
from engine.supervisor.server import Server
from engine.system import file_locks, linux, paths
from engine.system.files import MAX_DAMAGED_BYTES
from engine.system.ssh import explain_ssh_exit

_TICK_S = 0.25
_LOCK_RETRY_S = 1.0
_MIN_RETRY_S, _MAX_RETRY_S = 0.5, 10.0
MAX_LOG_BYTES = 16 << 30
"""Maximum size of the copied log in bytes. It is a hundred times the size of the log of a long run."""


class Follower:
    """Follower that copies the log of the run `name` from `machine`, and forwards commands of local clients to it."""

    def __init__(self, machine: Host, name: str) -> None:
        self._machine, self._name = machine, name
        self._selector = selectors.DefaultSelector()
        self._link: NodeLink | None = None
        self._retry_at, self._retry_delay_s = 0.0, _MIN_RETRY_S
        self._run: RunFolder | None = None  # local copy of the run
        self._lock: int | None = None  # descriptor of the copy's lock file
        self._log: EventLog | None = None
        self._partial_line = b""  # received beginning of the next line of the log
        self._server: Server | None = None
        self._has_reported = False  # True once a result has been printed
        self._is_done = False  # True if `run` must return
        self._progress_at = 0.0  # time of the last connection or chunk of the log
        self._exit_code = 0

    def run(self) -> int:
        """Follow the run until standard input is closed. Returns the exit code, which is 1 if the run was not found."""
        self._selector.register(sys.stdin, selectors.EVENT_READ, lambda _mask: self._check_input())
        try:
            while not self._is_done:
                self._poll_link()
                for key, mask in self._selector.select(_TICK_S):
                    key.data(mask)
                if self._server is not None:
                    self._server.tick()
        finally:
            self._close()
        return self._exit_code

    def _poll_link(self) -> None:
        """Connect to the other machine once it is time for the next attempt, unless another follower has the lock.

        If there is a connection, close it if the machine counts as lost. Also close it if no state of the run has
        arrived within `START_S` of the connection or the last chunk of the log.
        """
        link = self._link
        if link is None:
            if time.monotonic() > self._retry_at and self._acquire_lock():
                self._connect()
        elif reason := link.silence_reason(self._machine.title):
            self._on_away(reason)
        elif not self._has_reported and time.monotonic() > self._progress_at + START_S:
            self._on_away(f"{self._machine.title} has not sent the state of the run.")

    def _check_input(self) -> None:
        """Let `run` end if standard input was closed. The content of the input is ignored."""
        if not os.read(sys.stdin.fileno(), 4096):
            self._is_done = True

    def _acquire_lock(self) -> bool:
        """Try to lock the local copy of the run, and return True if this process may write to it.

        As long as there is no local copy, the result is True. If another follower has the lock, the next attempt is
        scheduled.
        """
        if self._lock is None or self._run is None:
            return True
        is_acquired = file_locks.try_lock(self._lock)
        self._retry_at = 0.0 if is_acquired else time.monotonic() + _LOCK_RETRY_S
        return is_acquired

    # The other machine

    def _connect(self) -> None:
        """Start a process on the other machine through ssh (a relay), which sends the log of the run."""
        self._progress_at = time.monotonic()
        name = self._run.run_id if self._run is not None else self._name
        command = remote_command(self._machine, "node", "--relay", name)
        folder = paths.make_private_folder(mirrors_folder(self._machine.name))
        try:
            self._link = NodeLink(command, folder / "relay.log", self._selector, self._on_message, self._on_end)
        except OSError as error:
            self._on_away(f"{command[0]} can't be started: {error}.")

    def _on_message(self, message: FromNode) -> None:
        """Handle a message from the other machine. Disconnect if it is invalid or can't be stored."""
        if self._link is None:
            return  # it was disconnected because of an earlier message
        try:
            self._dispatch(message)
        except (ValueError, OverflowError) as error:
            self._on_away(f"{self._machine.title} sent an invalid message: {error}.")
        except OSError as error:
            self._on_away(f"The copy of the run can't be written: {error}.")

    def _dispatch(self, message: FromNode) -> None:
        """Call the handler of a message. Raises ValueError or OverflowError if it is invalid, and OSError."""
        if self._log is None and isinstance(message, LogChunk | RunLiveness):
            raise ValueError("the run itself is missing")
        if isinstance(message, LogChunk):
            self._progress_at = time.monotonic()
        match message:
            case RunFound():
                self._on_found(message)
            case LogChunk():
                self._append_log(message)
            case RunLiveness():
                self._on_liveness(message)
            case NodeFailed():
                self._on_away(f"{self._machine.title}: {message.cause}.")

    def _on_found(self, found: RunFound) -> None:
        """Request the part of the log that is missing in the local copy.

        If another follower writes to the local copy, disconnect instead.
        """
        assert self._link is not None
        if self._run is None:
            self._run = mirror_folder(self._machine.name, found.run_id)
            paths.make_private_folder(self._run.path)
            paths.make_private_folder(self._run.checkpoints)
            self._lock = file_locks.open_file(self._run.path / "follower.lock", os.O_CREAT)
        if not self._acquire_lock():
            self._link.kill()
            self._link = None
            self._report(FollowResult(folder=str(self._run.path)))
            return
        paths.write_atomically(self._run.job_file, found.job)
        os.utime(self._run.job_file, (found.written, found.written))  # counts as the start of a run without events
        self._log = self._log or EventLog(self._run.events_file)
        self._partial_line = b""
        self._link.send(LogRequest(offset=self._log.end, sha256=file_sha256(self._run.events_file)))

    def _append_log(self, chunk: LogChunk) -> None:
        """Append the complete lines of a chunk to the log.

        A chunk with offset 0 starts a new log if there already is one.
        """
        assert self._log is not None
        assert self._run is not None
        if chunk.offset == 0 and self._log.end:
            self._stop_serving()
            self._log.close()
            self._run.events_file.unlink(missing_ok=True)
            self._log, self._partial_line = EventLog(self._run.events_file), b""
        data = self._partial_line + chunk.data
        end = data.rfind(b"\n") + 1
        self._partial_line = data[end:]
        if len(self._partial_line) > MAX_DAMAGED_BYTES or self._log.end + end > MAX_LOG_BYTES:
            raise ValueError("its log, or a line of it, is too long")
        self._log.copy(data[:end])

    def _on_liveness(self, state: RunLiveness) -> None:
        """Act as the supervisor for local clients as long as the run on the other machine has a supervisor.

        Also reports the local copy, and resets the delay before the connection is retried.
        """
        assert self._run is not None
        if not state.alive:
            self._stop_serving()
        else:
            if self._server is None:
                assert self._log is not None
                listening = endpoint.open_endpoint(self._run.path)
                self._server = Server(listening, self._log, self._run.run_id, self._selector, self._forward)
            self._server.accept_clients()
            self._run.write_supervisor(
                SupervisorFile(
                    pid=os.getpid(),
                    start_time=process_start(os.getpid()),
                    endpoint=self._server.endpoint.text,
                    execution=state.execution,
                )
            )
        self._retry_delay_s = _MIN_RETRY_S
        self._report(FollowResult(folder=str(self._run.path)))

    def _forward(self, command: Command) -> None:
        """Send a command of a local client to the other machine. Without a connection, the command is dropped."""
        if self._link is not None:
            self._link.send(RunCommand(command=command))

    def _on_end(self, reason: str) -> None:
        """Handle the end of the connection. `reason` says which message was invalid, or is ""."""
        assert self._link is not None
        code, errors = self._link.exit_status()
        title = self._machine.title
        self._on_away(f"{title}: {reason}." if reason else explain_ssh_exit(title, code, errors))

    def _on_away(self, reason: str) -> None:
        """Disconnect from the other machine for `reason`, and retry later. Exit if the run was never reached."""
        if not self._has_reported:
            self._report(FollowResult(problem=reason))
            self._is_done, self._exit_code = True, 1
        if self._link is not None:
            self._link.kill()
            self._link = None
        if self._server is not None:
            self._server.refuse_clients(reason)
        self._retry_at = time.monotonic() + self._retry_delay_s
        self._retry_delay_s = min(2 * self._retry_delay_s, _MAX_RETRY_S)

    # This machine

    def _report(self, result: FollowResult) -> None:
        """Print for the parent process that the run was found, or the problem. Later calls do nothing."""
        if not self._has_reported:
            self._has_reported = True
            print(ENCODE.encode(result).decode(), flush=True)

    def _stop_serving(self) -> None:
        """Send pending events to local clients, disconnect them, and remove supervisor.json, as at the end of a run."""
        assert self._run is not None
        if self._server is not None:
            self._server.tick()
            self._server.close()
            self._server = None
        self._run.supervisor_file.unlink(missing_ok=True)

    def _close(self) -> None:
        """Disconnect from the other machine and from local clients, and release the local copy."""
        if self._link is not None:
            self._link.kill()
        if self._log is not None:
            self._stop_serving()
            self._log.close()
        if self._lock is not None:
            os.close(self._lock)
        self._selector.close()


def main() -> int:
    """Follow the run that the arguments name, until standard input is closed. Returns 1 if it was not found."""
    name, run = sys.argv[1:]
    machine = host(name)
    linux.name_process("footplate-follow")
    if machine is None:
        print(ENCODE.encode(FollowResult(problem=f"{name} is not among your hosts.")).decode())
        return 1
    with suppress(KeyboardInterrupt):
        return Follower(machine, run).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
