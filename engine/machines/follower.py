"""``python -m engine.machines.follower HOST RUN``: follows a run of another machine through ssh.

What the run says there is written to a folder here (see `mirror_folder`), in which this process takes the place
of the run's supervisor: windows and commands read the log and connect as they do to any run, and their commands are
handed on. While the other machine is away they are told so, and it is tried again. It ends with its standard input,
and the run goes on.
"""

from __future__ import annotations

import os
import selectors
import sys
import time
from contextlib import suppress

from engine.contract.hosts import Host, host
from engine.contract.nodes import (
    LOST_S,
    Followed,
    FromNode,
    LogPart,
    LogWanted,
    NodeFailed,
    RunFound,
    RunStands,
    ToRun,
    file_sha256,
)
from engine.contract.protocol import ENCODE, Command
from engine.machines.link import NodeLink
from engine.runs.folder import RunFolder, SupervisorFile, process_start
from engine.runs.index import mirror_folder, mirrors_of
from engine.supervisor import endpoint
from engine.supervisor.event_log import EventLog
from engine.supervisor.server import Server
from engine.system import file_locks, linux, paths
from engine.system.ssh import ssh_command, why_it_ended

BEGIN_S = 40.0
"""How long a machine may take until its first word: to be reached, and to start Python."""
_TICK_S = 0.25
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0


class Follower:
    """Follows the run that `where` calls `name`, from `run` on until the standard input ends."""

    def __init__(self, where: Host, name: str) -> None:
        self._where, self._name = where, name
        self._selector = selectors.DefaultSelector()
        self._link: NodeLink | None = None
        self._again_at, self._pause_s = 0.0, _FIRST_PAUSE_S
        self._run: RunFolder | None = None
        self._lock: int | None = None
        self._log: EventLog | None = None
        self._rest = b""
        self._server: Server | None = None
        self._told = self._over = False
        self._code = 0

    def run(self) -> int:
        """Returns the exit code, which is 1 where the run was not found."""
        self._selector.register(sys.stdin, selectors.EVENT_READ, lambda _mask: self._parent())
        try:
            while not self._over:
                self._step()
                for key, mask in self._selector.select(_TICK_S):
                    key.data(mask)
                if self._server is not None:
                    self._server.tick()
        finally:
            self._close()
        return self._code

    def _step(self) -> None:
        link = self._link
        if link is None:
            if time.monotonic() > self._again_at and self._is_ours():
                self._reach()
        elif not link.ended:
            link.tick()
            limit = LOST_S if link.begun else BEGIN_S
            if link.silent_s > limit:
                link.kill()
                self._away(f"{self._where.title} has not responded for {limit:.0f} s: it, or its network, may be down.")

    def _parent(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            self._over = True

    def _is_ours(self) -> bool:
        """Whether this process writes the folder, and not one that follows the same run for another window."""
        if self._lock is None or self._run is None:
            return True
        ours = file_locks.take(self._lock)
        self._again_at = 0.0 if ours else time.monotonic() + 1.0
        return ours

    # The other machine

    def _reach(self) -> None:
        name = self._run.run_id if self._run is not None else self._name
        command = ssh_command(self._where.reached_by, self._where.command("node", "--relay", name))
        folder = paths.private_folder(mirrors_of(self._where.name))
        try:
            self._link = NodeLink(command, folder / "relay.log", self._selector, self._take, self._ended)
        except OSError as error:
            self._away(f"{command[0]} can't be started: {error}.")

    def _take(self, message: FromNode) -> None:
        match message:
            case RunFound():
                self._begin(message)
            case LogPart():
                self._copy(message)
            case RunStands():
                self._stands(message)
            case NodeFailed():
                self._away(f"{self._where.title}: {message.cause}.")

    def _begin(self, found: RunFound) -> None:
        """Asks for what the folder lacks, unless another process does."""
        assert self._link is not None
        if self._run is None:
            try:
                self._run = mirror_folder(self._where.name, found.run_id)
            except ValueError as error:
                self._away(f"{self._where.title}: {error}.")
                return
            paths.private_folder(self._run.path)
            paths.private_folder(self._run.checkpoints)
            self._lock = os.open(self._run.path / "follower.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not self._is_ours():
            self._link.kill()
            self._link = None
            self._tell(Followed(folder=str(self._run.path)))
            return
        paths.put_into_place(self._run.job_file, found.job)
        os.utime(self._run.job_file, (found.written, found.written))
        self._log = self._log or EventLog(self._run.events_file)
        self._rest = b""
        wanted = LogWanted(offset=self._log.end, sha256=file_sha256(self._run.events_file))
        self._link.send(wanted)

    def _copy(self, part: LogPart) -> None:
        assert self._log is not None
        assert self._run is not None
        if part.offset == 0 and self._log.end:
            self._stop_serving()
            self._log.close()
            self._run.events_file.unlink(missing_ok=True)
            self._log, self._rest = EventLog(self._run.events_file), b""
        whole = (self._rest + part.data).rfind(b"\n") + 1
        lines, self._rest = (self._rest + part.data)[:whole], (self._rest + part.data)[whole:]
        self._log.copy(lines)

    def _stands(self, stands: RunStands) -> None:
        """Takes the supervisor's place while there is one."""
        assert self._run is not None
        if not stands.alive:
            self._stop_serving()
        else:
            if self._server is None:
                assert self._log is not None
                listening = endpoint.open_endpoint(self._run.path)
                self._server = Server(listening, self._log, self._run.run_id, self._selector, self._hand_on)
            self._server.shut("")
            started = process_start(os.getpid())
            self._run.write_supervisor(
                SupervisorFile(
                    pid=os.getpid(),
                    start_time=started,
                    endpoint=self._server.endpoint.text,
                    execution=stands.execution,
                )
            )
        self._pause_s = _FIRST_PAUSE_S
        self._tell(Followed(folder=str(self._run.path)))

    def _hand_on(self, command: Command) -> None:
        if self._link is not None:
            self._link.send(ToRun(command=command))

    def _ended(self, why: str) -> None:
        assert self._link is not None
        code, said = self._link.last_words()
        self._away(f"{self._where.title}: {why}." if why else why_it_ended(self._where.title, code, said))

    def _away(self, why: str) -> None:
        """Nothing comes from the other machine: ends where it never did, else tries again."""
        if not self._told:
            self._tell(Followed(problem=why))
            self._over, self._code = True, 1
        if self._link is not None:
            self._link.kill()
            self._link = None
        if self._server is not None:
            self._server.shut(why)
        self._again_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    # Here

    def _tell(self, said: Followed) -> None:
        """To the process that has started this one, once."""
        if not self._told:
            self._told = True
            print(ENCODE.encode(said).decode(), flush=True)

    def _stop_serving(self) -> None:
        assert self._run is not None
        if self._server is not None:
            self._server.tick()
            self._server.close()
            self._server = None
        self._run.supervisor_file.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._link is not None:
            self._link.kill()
        if self._log is not None:
            self._stop_serving()
            self._log.close()
        if self._lock is not None:
            os.close(self._lock)
        self._selector.close()


def main() -> int:
    name, run = sys.argv[1:]
    where = host(name)
    linux.name_process("footplate-follow")
    if where is None:
        print(ENCODE.encode(Followed(problem=f"{name} is not among your hosts.")).decode())
        return 1
    with suppress(KeyboardInterrupt):
        return Follower(where, run).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
