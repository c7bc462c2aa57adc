"""Files of a run on another machine, copied on request: ``footplate node --send RUN FILE`` there, through ssh.

An interrupted copy is kept and continued next time; the SHA-256 of the complete file is verified. The window runs
``python -m engine.machines.fetch HOST RUN FILE``, which prints `FetchProgress` lines.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.contract.hosts import Host, host
from engine.contract.nodes import FetchProgress, RunFile, file_sha256
from engine.contract.protocol import ENCODE
from engine.machines.files import is_inside
from engine.runs.index import find_run, mirror_folder
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import open_file
from engine.system.ssh import english_environment, ssh_command, ssh_exit_reason

_CHUNK = 1 << 20
_PROGRESS_INTERVAL_S = 0.2
_PATTERNS = ("checkpoints/*.pt", "*.log", "worker-*-traceback.txt")
"""Files that can be fetched: checkpoints and output of the run's processes. The follower copies events.jsonl."""


class NotFetched(Exception):  # noqa: N818  (a state of things more than an error)
    """The file was not copied; the text tells the user why."""


def list_files(name: str) -> int:
    """Print the files of a local run that can be fetched, as JSON lines, and return the exit code."""
    run = find_run(name)
    if run is None:
        return 1
    for pattern in _PATTERNS:
        for path in sorted(run.path.glob(pattern)):
            if not path.name.startswith("."):
                relative = path.relative_to(run.path).as_posix()
                described = RunFile(run_id=run.run_id, path=relative, size_bytes=path.stat().st_size)
                print(ENCODE.encode(described).decode())
    return 0


def send_file(name: str, path: str) -> int:
    """Write a file of a local run to standard output and return the exit code.

    A line that describes it comes first. Standard input then gives the offset to start from.
    """
    run = find_run(name)
    try:
        if run is None or not is_inside(path):
            raise FileNotFoundError(f"there is no {path} of a run “{name}”")
        with open_file(run.path / path) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            described = RunFile(run_id=run.run_id, path=path, size_bytes=stream.tell(), sha256=digest)
            sys.stdout.buffer.write(ENCODE.encode(described) + b"\n")
            sys.stdout.buffer.flush()
            stream.seek(int(sys.stdin.readline()))
            shutil.copyfileobj(stream, sys.stdout.buffer, _CHUNK)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def fetch(machine: Host, name: str, path: str, on_progress: Callable[[int, int], object]) -> Path:
    """Copy a file of the run that `machine` calls `name` into the run's local copy, and return its path.

    `on_progress` receives the bytes that have been copied and their total. Raises NotFetched, OSError.
    """
    if not is_inside(path):
        raise NotFetched(f"{path} is not a file of the run's folder.")
    child = subprocess.Popen(
        ssh_command(machine.reached_by, machine.command("node", "--send", name, path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=english_environment(),
        bufsize=0,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            described = msgspec.json.decode(_read_line(child.stdout.fileno()), type=RunFile)
        except NOT_DECODED:
            errors = child.stderr.read().decode(errors="replace")
            raise NotFetched(ssh_exit_reason(machine.title, child.wait(), errors)) from None
        try:
            target = mirror_folder(machine.name, described.run_id).path / path
            partial = target.with_name(f".{target.name}.{described.sha256[:16]}.part")
        except ValueError as error:
            raise NotFetched(f"{machine.title}: {error}.") from error
        paths.make_folder(target.parent)
        with open(partial, "ab", opener=paths.open_private) as stream:
            copied = stream.tell()
            child.stdin.write(b"%d\n" % copied)
            while data := os.read(child.stdout.fileno(), _CHUNK):
                stream.write(data)
                copied += len(data)
                on_progress(copied, described.size_bytes)
            stream.flush()
            os.fsync(stream.fileno())
    if copied < described.size_bytes:
        raise NotFetched(f"The connection to {machine.title} was lost. Fetch the file again to copy the rest.")
    if file_sha256(partial) != described.sha256:
        partial.unlink()
        raise NotFetched(f"{path} did not arrive as it was sent. Fetch it again.")
    os.replace(partial, target)
    for outdated in target.parent.glob(f".{target.name}.*.part"):  # of earlier versions of the file
        outdated.unlink()
    return target


def _read_line(descriptor: int) -> bytes:
    """Read one line and nothing after it."""
    line = bytearray()
    while (byte := os.read(descriptor, 1)) not in (b"", b"\n"):
        line += byte
    return bytes(line)


def main() -> int:
    machine, name, path = sys.argv[1:]
    printed_at = 0.0

    def print_progress(copied: int, total: int) -> None:
        nonlocal printed_at
        if copied == total or time.monotonic() > printed_at + _PROGRESS_INTERVAL_S:
            printed_at = time.monotonic()
            print(ENCODE.encode(FetchProgress(done_bytes=copied, total_bytes=total)).decode(), flush=True)

    known = host(machine)
    try:
        if known is None:
            raise NotFetched(f"{machine} is not among your hosts.")
        print(ENCODE.encode(FetchProgress(path=str(fetch(known, name, path, print_progress)))).decode())
    except (NotFetched, OSError) as error:
        print(ENCODE.encode(FetchProgress(problem=str(error))).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
