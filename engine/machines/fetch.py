"""Copy files from a run on another machine, where ``footplate node --send RUN`` serves them through ssh.

An interrupted copy is continued the next time. The SHA-256 of the complete file is verified. The window runs ``python
-m engine.machines.fetch HOST RUN FILE``, which prints `FetchProgress` lines.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from engine.contract.hosts import Host, host
from engine.contract.nodes import FetchProgress, RunFile
from engine.contract.protocol import ENCODE
from engine.machines.transfer import ConnectionLost, FileConnection, is_inside, remove_partial, serve
from engine.runs.index import find_run, mirror_folder
from engine.system.decode_errors import NOT_DECODED
from engine.system.ssh import explain_ssh_exit, ssh_command

_PROGRESS_INTERVAL_S = 0.2
_PATTERNS = ("checkpoints/*.pt", "*.log", "worker-*-traceback.txt")
"""Patterns of the files that can be fetched: checkpoints, logs and tracebacks.

events.jsonl is not included, since the follower copies it.
"""


class NotFetched(Exception):  # noqa: N818 - describes the outcome
    """Raised when a file can't be copied. The message gives the user the reason."""


def list_files(name: str) -> int:
    """Print the files of the local run `name` that can be fetched, as lines of JSON (`RunFile`).

    Returns the exit code, which is 1 if there is no such run.
    """
    run = find_run(name)
    if run is None:
        return 1
    for pattern in _PATTERNS:
        for path in sorted(run.path.glob(pattern)):
            if not path.name.startswith("."):  # a file that is being written
                relative = path.relative_to(run.path).as_posix()
                described = RunFile(run_id=run.run_id, path=relative, size_bytes=path.stat().st_size)
                print(ENCODE.encode(described).decode())
    return 0


def send_files(name: str) -> int:
    """Serve the files of a local run to another machine over standard input and output. Returns the exit code."""
    run = find_run(name)
    if run is None:
        print(f"There is no run “{name}”.", file=sys.stderr)
        return 1
    return serve(run.path, run.run_id)


def fetch(machine: Host, name: str, path: str, on_progress: Callable[[int, int], object]) -> Path:
    """Copy a file of the run `name` on `machine` to the local copy of the run, and return its local path.

    `path` is the file's path relative to the run folder. `on_progress` is called with the number of copied bytes and
    the total. Raises NotFetched and OSError.
    """
    if not is_inside(path):
        raise NotFetched(f"{path} is not a file of the run's folder.")
    command = ssh_command(machine.ssh_destination, machine.command("node", "--send", name))
    with tempfile.TemporaryFile() as errors, closing(FileConnection(command, errors)) as connection:
        try:
            connection.write(RunFile(path=path))
            offer = connection.read()
        except (OSError, *NOT_DECODED):
            code = connection.close()
            errors.seek(0)
            reason = explain_ssh_exit(machine.title, code, errors.read().decode(errors="replace"))
            raise NotFetched(reason) from None
        if offer.problem:
            raise NotFetched(f"{machine.title}: {offer.problem}.")
        try:
            target = mirror_folder(machine.name, offer.run_id).path / path
        except ValueError as error:
            raise NotFetched(f"{machine.title}: {error}.") from error
        try:
            partial = connection.receive(offer, target, on_progress)
        except ConnectionLost as error:
            message = f"The connection to {machine.title} was lost. Fetch the file again to copy the rest."
            raise NotFetched(message) from error
    if partial is None:
        raise NotFetched(f"{path} did not arrive as it was sent. Fetch it again.")
    os.replace(partial, target)
    remove_partial(target)  # interrupted copies of earlier versions
    return target


def main() -> int:
    """Fetch the file that the arguments HOST RUN FILE name, and return 0, even after a problem.

    Progress, and finally the local path or the problem, are printed as lines of JSON.
    """
    host_name, run_name, path = sys.argv[1:]
    printed_at = 0.0

    def print_progress(copied: int, total: int) -> None:
        nonlocal printed_at
        if copied == total or time.monotonic() > printed_at + _PROGRESS_INTERVAL_S:
            printed_at = time.monotonic()
            print(ENCODE.encode(FetchProgress(done_bytes=copied, total_bytes=total)).decode(), flush=True)

    machine = host(host_name)
    try:
        if machine is None:
            raise NotFetched(f"{host_name} is not among your hosts.")
        fetched = fetch(machine, run_name, path, print_progress)
        print(ENCODE.encode(FetchProgress(path=str(fetched))).decode())
    except (NotFetched, OSError) as error:
        print(ENCODE.encode(FetchProgress(problem=str(error))).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
