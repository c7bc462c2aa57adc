"""Files of a run on another machine, fetched when they are asked for: ``footplate node --send RUN FILE`` there, ssh
between.

What has come of a file before the connection broke stays, and only the rest is asked for the next time; its SHA-256
says at the end whether it has come as it was. ``python -m engine.machines.fetch HOST RUN FILE`` does so for the window,
and tells of it in lines.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from engine.contract.hosts import Host, host
from engine.contract.nodes import FetchProgress, RunFile, file_sha256
from engine.contract.protocol import ENCODE
from engine.machines.files import is_inside
from engine.runs.index import find_run, mirror_folder
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.ssh import in_english, ssh_command, why_it_ended

_CHUNK = 1 << 20
_TOLD_EVERY_S = 0.2
_KINDS = ("checkpoints/*.pt", "*.log", "worker-*-traceback.txt")
"""What can be fetched: checkpoints, and what a run's processes have printed. events.jsonl comes by itself."""


class NotFetched(Exception):  # noqa: N818  (a state of things more than an error)
    """The file did not come; the text says why, in words for the user."""


def list_files(name: str) -> int:
    """Prints the files of a run of this machine that can be fetched, an object a line."""
    run = find_run(name)
    if run is None:
        return 1
    for path in _files(run.path):
        relative = path.relative_to(run.path).as_posix()
        described = RunFile(run_id=run.run_id, path=relative, size_bytes=path.stat().st_size)
        print(ENCODE.encode(described).decode())
    return 0


def send_file(name: str, path: str) -> int:
    """Tells of a file of a run of this machine, and writes it to the standard output from where the standard input
    says.
    """
    run = find_run(name)
    try:
        if run is None or not is_inside(path):
            raise FileNotFoundError(f"there is no {path} of a run “{name}”")
        with (run.path / path).open("rb") as stream:
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


def fetch(where: Host, name: str, path: str, progress: Callable[[int, int], object]) -> Path:
    """Fetches a file of what `where` calls `name` into the folder in which that is followed, and returns where it is.
    `progress` is told of the bytes that are here, of how many. Raises NotFetched, OSError.
    """
    if not is_inside(path):
        raise NotFetched(f"{path} is not a file of the run's folder.")
    child = subprocess.Popen(
        ssh_command(where.reached_by, where.command("node", "--send", name, path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=in_english(),
        bufsize=0,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            offered = msgspec.json.decode(_line(child.stdout.fileno()), type=RunFile)
        except NOT_DECODED:
            said = child.stderr.read().decode(errors="replace")
            raise NotFetched(why_it_ended(where.title, child.wait(), said)) from None
        try:
            target = mirror_folder(where.name, offered.run_id).path / path
            part = target.with_name(f".{target.name}.{offered.sha256[:16]}.part")
        except ValueError as error:
            raise NotFetched(f"{where.title}: {error}.") from error
        paths.make_folder(target.parent)
        with open(part, "ab", opener=paths.for_the_user_alone) as stream:
            here = stream.tell()
            child.stdin.write(b"%d\n" % here)
            while data := os.read(child.stdout.fileno(), _CHUNK):
                stream.write(data)
                here += len(data)
                progress(here, offered.size_bytes)
            stream.flush()
            os.fsync(stream.fileno())
    if here < offered.size_bytes:
        raise NotFetched(f"The connection to {where.title} was lost; what has come is kept. Fetch the file again.")
    if file_sha256(part) != offered.sha256:
        part.unlink()
        raise NotFetched(f"{path} did not arrive as it was sent. Fetch it again.")
    os.replace(part, target)
    for other in target.parent.glob(f".{target.name}.*.part"):  # of what the file was before
        other.unlink()
    return target


def _line(descriptor: int) -> bytes:
    """The first line, and nothing of what follows it."""
    line = bytearray()
    while (byte := os.read(descriptor, 1)) not in (b"", b"\n"):
        line += byte
    return bytes(line)


def _files(folder: Path) -> Iterator[Path]:
    for kind in _KINDS:
        yield from sorted(path for path in folder.glob(kind) if not path.name.startswith("."))


def main() -> int:
    machine, name, path = sys.argv[1:]
    told_at = 0.0

    def tell(here: int, of: int) -> None:
        nonlocal told_at
        if here == of or time.monotonic() > told_at + _TOLD_EVERY_S:
            told_at = time.monotonic()
            print(ENCODE.encode(FetchProgress(done_bytes=here, total_bytes=of)).decode(), flush=True)

    where = host(machine)
    try:
        if where is None:
            raise NotFetched(f"{machine} is not among your hosts.")
        print(ENCODE.encode(FetchProgress(path=str(fetch(where, name, path, tell)))).decode())
    except (NotFetched, OSError) as error:
        print(ENCODE.encode(FetchProgress(problem=str(error))).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
