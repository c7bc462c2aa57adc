"""What a run's supervisor and its machines ("nodes") tell each other: `footplate node` on each, which ssh has started.

Frames of `protocol` go over its standard input and output, both ways, and a `Beat` wherever there is nothing else to
say. The supervisor begins with a `NodeOrder`. The node answers with `NodeFacts`; where these are in order, it is
given the files that it lacks, and `Meet`. The first node answers that with `Listening`, which the others need for
theirs. From then on it hands on what its workers say, and their ends.

With `--relay RUN` it is a run of its own machine that it tells of, to whoever follows that from another: `RunFound`,
and once it is given a `LogWanted`, the run's log from there on as it grows, byte for byte, and how the run stands.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from engine.contract.devices import DeviceSample
from engine.contract.protocol import Command, Message
from engine.contract.worker import WorkerSpec

NODE_PROTOCOL = 1
PART_BYTES = 1 << 19
"""How much of a file one frame holds; base64 makes it a third longer."""
BEAT_S = 1.0
SILENCE_S = 30.0
"""A node that hears nothing from its supervisor for this long ends all that it has started."""
LOST_S = 8.0
"""A node that says nothing for this long counts as lost. Short, so that it is named before its ranks are held to hang;
long enough for a network that is away for some seconds."""


class FileDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a run: its path in the run's folder, and its SHA-256."""

    path: str
    sha256: str


class DatasetDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a folder or a file holds, by names and sizes: `names` is a SHA-256 of both, "" where it is not there."""

    files: int = 0
    size_bytes: int = 0
    names: str = ""


class NodeOrder(Message, tag="order", kw_only=True, frozen=True):
    """`specs` are those of this node's workers, by rank. `run_folder` is given to a node that sees the run's own
    folder; others have one of their own, where `files` are to be before training. `title` is what the user calls the
    machine; `address` and `port` are as in `Host`; each `attempt` has another port. The dataset and the other inputs
    of the job are looked at.
    """

    protocol: int = NODE_PROTOCOL
    run_id: str
    attempt: int
    title: str
    node: int
    nodes: int
    specs: tuple[WorkerSpec, ...]
    run_folder: str = ""
    files: tuple[FileDigest, ...] = ()
    address: str = ""
    port: int


class Meet(Message, tag="meet", kw_only=True, frozen=True):
    """The node's own address, over which it is to talk, and where the nodes meet: the first node chooses the port,
    and is told 0.
    """

    own_address: str
    address: str
    port: int


class ToWorker(Message, tag="to_worker", kw_only=True, frozen=True):
    rank: int
    command: Command


class KillWorker(Message, tag="kill", kw_only=True, frozen=True):
    rank: int
    hard: bool


class FileWanted(Message, tag="wanted", kw_only=True, frozen=True):
    """Asks for a file of the run's folder."""

    path: str


class FilePart(Message, tag="part", kw_only=True, frozen=True):
    """The next bytes of a file. Its last part, which may be empty, has its SHA-256; where it has an `error` instead,
    the file can't be read.
    """

    path: str
    data: bytes
    sha256: str = ""
    error: str = ""

    @property
    def last(self) -> bool:
        return bool(self.sha256 or self.error)


class Beat(Message, tag="beat", frozen=True):
    pass


class NodeFacts(Message, tag="facts", kw_only=True, frozen=True):
    """What a node found on its machine. `versions` are of what must be alike everywhere; `inputs` are the digests of
    the job's dataset and of the other files that it names, by field; `lacks` are those of the order's files that are
    not there; `reached_at` the address that ssh came to, `came_from` the one that it came from.
    """

    versions: dict[str, str]
    inputs: dict[str, DatasetDigest]
    lacks: tuple[str, ...] = ()
    address: str = ""
    came_from: str = ""
    time: float
    free_bytes: int
    gpus: tuple[str, ...] = ()
    driver: str = ""
    problem: str = ""


class Listening(Message, tag="listening", kw_only=True, frozen=True):
    address: str
    port: int


class FromWorker(Message, tag="from_worker", kw_only=True, frozen=True):
    """A message of `FROM_WORKER`."""

    rank: int
    message: msgspec.Raw


class WorkerEnded(Message, tag="worker_ended", kw_only=True, frozen=True):
    """`code` is None for a worker that its node ended because of another one."""

    rank: int
    code: int | None


class Sampled(Message, tag="sampled", kw_only=True, frozen=True):
    samples: tuple[DeviceSample, ...]


class NodeFailed(Message, tag="node_failed", kw_only=True, frozen=True):
    """The node can't do its work; `cause` is why, in a sentence."""

    cause: str


class RunFound(Message, tag="run_found", kw_only=True, frozen=True):
    """A run of the node's machine, the contents of its job.toml, and when that was written (seconds since the
    epoch).
    """

    run_id: str
    job: bytes
    written: float


class LogWanted(Message, tag="log_wanted", kw_only=True, frozen=True):
    """Asks for the run's log from byte `offset` on; `sha256` is that of the bytes before it that are here already."""

    offset: int
    sha256: str


class LogPart(Message, tag="log_part", kw_only=True, frozen=True):
    """The next bytes of the log; at an `offset` of 0 it begins anew, as that which is here was another."""

    offset: int
    data: bytes


class RunStands(Message, tag="run_stands", kw_only=True, frozen=True):
    """Whether somebody runs it, after all that it has said until then; `execution` is as in `RunStarted`."""

    execution: int
    alive: bool


class ToRun(Message, tag="to_run", kw_only=True, frozen=True):
    command: Command


class RunFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file of a run that another machine may fetch; its path is in the run's folder."""

    run_id: str
    path: str
    size_bytes: int
    sha256: str = ""


class FetchProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far a file has come, and at the end either the `path` where it is or the `problem` for which it is not
    there.
    """

    done_bytes: int = 0
    total_bytes: int = 0
    path: str = ""
    problem: str = ""


class Followed(Message, tag="followed", kw_only=True, frozen=True):
    """What ``python -m engine.machines.follower`` says, once: the folder in which a run of another machine is
    followed, or why none is.
    """

    folder: str = ""
    problem: str = ""


ToNode = NodeOrder | Meet | ToWorker | KillWorker | FileWanted | FilePart | LogWanted | ToRun | Beat
FromNode = (
    NodeFacts
    | Listening
    | FromWorker
    | WorkerEnded
    | Sampled
    | FilePart
    | NodeFailed
    | RunFound
    | LogPart
    | RunStands
    | Beat
)

TO_NODE = msgspec.json.Decoder(ToNode)
FROM_NODE = msgspec.json.Decoder(FromNode)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, "" where it can't be read."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""
