"""Follow runs on other machines, named "HOST:RUN", and fetch their files (``footplate fetch``)."""

from __future__ import annotations

import argparse
import atexit
import subprocess
import sys

import msgspec

from engine.cli.terminal import COMPLETED, FAILED, CommandError, StatusLine, print_error, print_lines
from engine.contract.hosts import Host, host
from engine.contract.nodes import FollowResult
from engine.machines.fetch import NotFetched, fetch
from engine.runs.folder import RunFolder
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import size

_EXIT_TIMEOUT_S = 5.0


def split(name: str) -> tuple[Host | None, str]:
    """Split "HOST:RUN" into the host and the name of the run. The host is None if none of the hosts has that name."""
    machine, _, run = name.rpartition(":")
    return (host(machine) if machine else None), run


def follow(machine: Host, run: str) -> RunFolder:
    """Start mirroring the run `run` of `machine` in another process, and return the local copy of its folder.

    Mirroring ends when this process exits. Raises CommandError if the run can't be followed.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "engine.machines.follower", machine.name, run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=paths.PACKAGES,
        start_new_session=True,  # Ctrl+C is for this command
    )
    assert child.stdout is not None
    try:
        answer = msgspec.json.decode(child.stdout.readline(), type=FollowResult)
    except NOT_DECODED:
        answer = FollowResult(problem=f"{machine.name}:{run} can't be followed.")
    if answer.problem:
        _end_follower(child)
        raise CommandError(print_error(answer.problem))
    atexit.register(_end_follower, child)
    return RunFolder(answer.folder)


def _end_follower(child: subprocess.Popen[bytes]) -> None:
    """Make the follower exit by closing its standard input, and kill it if it doesn't."""
    assert child.stdin is not None
    with child:
        child.stdin.close()
        try:
            child.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()


def add_fetch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="HOST:RUN", help="a machine, and the run's name there")
    parser.add_argument("file", nargs="?", default="checkpoints/best.pt", help="by default checkpoints/best.pt")
    parser.set_defaults(command=fetch_file)


def fetch_file(options: argparse.Namespace) -> int:
    """Fetch a file of a run on another machine, and print the path of the local copy. Returns an exit code.

    If there is an incomplete local copy, only the missing bytes are fetched.
    """
    machine, name = split(options.run)
    if machine is None:
        return print_error(f"“{options.run}” does not begin with one of your hosts and a colon.")
    line = StatusLine(sys.stderr)
    try:
        fetched = fetch(machine, name, options.file, lambda done, total: line.show(f"{size(done)} of {size(total)}"))
    except (NotFetched, OSError) as error:
        line.clear()
        return print_error(str(error), FAILED)
    line.clear()
    print_lines(str(fetched))
    return COMPLETED
