"""Remote machine that an attacker controls, and that sends arbitrary answers over ssh."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from engine.contract.hosts import Host, put_host
from engine.contract.nodes import FollowResult, LogChunk, Message, RunFile, RunFound, RunLiveness
from engine.contract.protocol import ENCODE
from engine.machines.link import MAX_LOG_BYTES
from engine.runs.index import mirrors_folder
from engine.system import paths
from tests.engine.cli.terminal import footplate
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.attacks, pytest.mark.skipif(os.name == "nt", reason="ssh is a script")]

HOST = "ws1"
RUN = RunFound(run_id="20260101-000000-run", job=b"", written=0.0)
CHUNK = LogChunk(offset=0, data=b"x" * (1 << 20))
STATE = RunLiveness(execution=1, alive=False)
Answer = Callable[..., None]


@pytest.fixture
def replace_ssh(tmp_path: Path, separate_home: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Return a function that replaces ssh and adds the host `HOST`.

    The replacement prints `error_bytes` bytes on standard error and the given lines on standard output. If
    `reads_requests`, it exits when its input is closed, otherwise at once.
    """

    def set_up(*lines: bytes, error_bytes: int = 0, reads_requests: bool = False) -> None:
        (tmp_path / "lines").write_bytes(b"".join(line + b"\n" for line in lines))
        (tmp_path / "bin").mkdir()
        ssh = tmp_path / "bin/ssh"
        end = "cat > /dev/null\n" if reads_requests else ""
        ssh.write_text(f"#!/bin/sh\nhead -c {error_bytes} /dev/zero >&2\ncat {tmp_path}/lines\n{end}")
        ssh.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
        put_host(Host(name=HOST))

    return set_up


def encode_messages(*messages: Message) -> list[bytes]:
    return [ENCODE.encode(message) for message in messages]


def follow_run() -> tuple[FollowResult, str]:
    """Follow a run on `HOST`. Return the result and the text on standard error."""
    with subprocess.Popen(
        [sys.executable, "-m", "engine.machines.follower", HOST, "run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=paths.PACKAGES,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        _, errors = process.communicate(timeout=PATIENCE_S)
    return msgspec.json.decode(line, type=FollowResult), errors.decode()


@pytest.mark.parametrize(
    "messages",
    [
        (msgspec.structs.replace(RUN, run_id="r" * 3000),),
        (msgspec.structs.replace(RUN, run_id="../../runs/other"),),
        (CHUNK,),
        (STATE,),
        (msgspec.structs.replace(RUN, written=1e300),),
        (RUN, *[CHUNK] * 17),
    ],
    ids=["long_id", "path_as_id", "log_first", "state_first", "far_time", "endless_line"],
)
def test_follower_ends_with_a_reason_after_invalid_messages(replace_ssh: Answer, messages: Sequence[Message]) -> None:
    replace_ssh(*encode_messages(*messages))
    result, errors = follow_run()
    assert HOST in result.problem
    assert "Traceback" not in errors
    assert not any((paths.home() / "runs").glob("*"))


def test_follower_limits_log_of_standard_error(replace_ssh: Answer) -> None:
    replace_ssh(*encode_messages(RUN, STATE), error_bytes=2 * MAX_LOG_BYTES)
    follow_run()
    assert (mirrors_folder(HOST) / "relay.log").stat().st_size <= MAX_LOG_BYTES


def test_fetch_refuses_file_larger_than_the_disk(replace_ssh: Answer) -> None:
    offer = RunFile(path="checkpoints/best.pt", run_id="run", size_bytes=1 << 60, sha256="0" * 64)
    replace_ssh(ENCODE.encode(offer), reads_requests=True)
    done = footplate("fetch", f"{HOST}:run")
    assert done.code
    assert "are free" in done.err


def test_fetch_limits_standard_error(replace_ssh: Answer) -> None:
    replace_ssh(error_bytes=64 << 20)
    done = footplate("fetch", f"{HOST}:run")
    assert done.code
    assert len(done.err) < 2 << 20
