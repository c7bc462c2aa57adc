"""Messages between a run's supervisor and `footplate node`, which ssh starts on each machine ("node").

Both directions use frames of `protocol` over the node's standard input and output. A side that has nothing else to send
sends a `KeepAlive`. The supervisor begins with a `NodeRequest`, and the node answers with `NodeFacts`. If other runs use
its devices, the node first sends `Waiting`. If the facts are valid, the supervisor copies missing files to the node and
sends `Rendezvous`. The first node answers with `Listening`, whose port the others need. Then the node forwards the
messages and exits of its workers. Files have a separate connection (`engine.machines.transfer`).

With `--relay RUN`, the node reports a run on its own machine to a follower: first `RunFound`, and after a `LogRequest`
the run's log, byte for byte, from the requested position on as it grows, and whether the run is alive.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import msgspec

from engine.contract.devices import DeviceSample
from engine.contract.events import Waiting
from engine.contract.protocol import Command, Message
from engine.contract.worker import WorkerSpec
from engine.system.files import open_file

NODE_PROTOCOL = 1
KEEP_ALIVE_S = 1.0
SILENCE_S = 30.0
"""Maximum time in seconds without a message from the supervisor. Then a node stops everything that it has started."""
LOST_S = 8.0
"""Maximum time in seconds without a message from a node. Then the node counts as lost.

It is shorter than the limit for hanging ranks, so that the failure is attributed to the node, and longer than a brief
network failure.
"""


class DatasetDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Digest of a folder or file. `names` is a SHA-256 of names and sizes, or "" if the folder does not exist."""

    files: int = 0
    size_bytes: int = 0
    names: str = ""


class NodeRequest(Message, tag="train", kw_only=True, frozen=True):
    """Request to a node to take part in one start of a run's workers.

    Before it answers, the node inspects the dataset and other inputs of the job.

    Attributes:
        title: User's name for the machine.
        specs: Workers on this node, by rank.
        run_folder: Folder of the run if the node has access to the same file system, or "" if the node must create one.
        address: Address at which the workers of all nodes meet, see `Host.address`.
        port: First of the ports at this address, see `Host.port`. Each `attempt` begins with another one of them.
    """

    protocol: int = NODE_PROTOCOL
    run_id: str
    attempt: int
    title: str
    node: int
    nodes: int
    specs: tuple[WorkerSpec, ...]
    run_folder: str = ""
    address: str = ""
    port: int


class Rendezvous(Message, tag="rendezvous", kw_only=True, frozen=True):
    """Address of the node's network interface, and the address and port of the rendezvous.

    The first node receives port 0 and chooses a port. `infiniband` is True if all machines have InfiniBand.
    """

    local_address: str
    address: str
    port: int
    infiniband: bool


class WorkerCommand(Message, tag="worker_command", kw_only=True, frozen=True):
    rank: int
    command: Command


class KillWorker(Message, tag="kill", kw_only=True, frozen=True):
    rank: int
    hard: bool


class KeepAlive(Message, tag="keep_alive", frozen=True):
    pass


class ShellStarted(Message, tag="shell", frozen=True):
    """First message from a machine: its shell runs and is now starting Python."""


class NodeFacts(Message, tag="facts", kw_only=True, frozen=True):
    """Facts about a node's machine.

    Attributes:
        versions: Versions that must be equal on all machines.
        inputs: Digests of the job's dataset and other inputs, by field.
        address: Address that ssh connected to.
        client_address: Address that ssh connected from.
        lost_gpus: GPUs in the request that the machine doesn't have, by their local names.
    """

    versions: dict[str, str]
    inputs: dict[str, DatasetDigest]
    address: str = ""
    client_address: str = ""
    infiniband: bool = False
    time: float
    free_bytes: int
    gpus: tuple[str, ...] = ()
    driver: str = ""
    lost_gpus: tuple[str, ...] = ()
    problem: str = ""


class Listening(Message, tag="listening", kw_only=True, frozen=True):
    address: str
    port: int


class FromWorker(Message, tag="from_worker", kw_only=True, frozen=True):
    """Message from a worker of a run, one of the types in `FROM_WORKER`, that its node forwards to the supervisor."""

    rank: int
    message: msgspec.Raw


class WorkerEnded(Message, tag="worker_ended", kw_only=True, frozen=True):
    """Exit of a worker. `code` is None if its node stopped it because of another worker.

    `files` maps the names of its log and traceback file to the last part of their content. It is empty if the
    supervisor can read the files itself.
    """

    rank: int
    code: int | None
    files: dict[str, bytes] = msgspec.field(default_factory=dict)


class Sampled(Message, tag="sampled", kw_only=True, frozen=True):
    samples: tuple[DeviceSample, ...]


class NodeFailed(Message, tag="node_failed", kw_only=True, frozen=True):
    """Failure of a node, with the cause in a sentence."""

    cause: str


class ConnectionTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Request to a machine to test its connections with the others. `rank` is its number among all `ranks` machines.

    The machine with rank 0 has no `address`. It listens at `port` or the next free port above. The other machines
    connect to it at `address` and `port`.
    """

    rank: int = 0
    ranks: int
    backend: Literal["gloo", "nccl"]
    address: str = ""
    port: int


class ConnectionTestResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of a `ConnectionTest`: the `port` that is open, or a `problem`.

    `has_connected` is True if another machine has connected.
    """

    port: int = 0
    has_connected: bool = False
    problem: str = ""


class RunFound(Message, tag="run_found", kw_only=True, frozen=True):
    """Run that was found on the node's machine.

    `job` is the content of its job.toml, and `written` the time of its last change in seconds since the epoch.
    """

    run_id: str
    job: bytes
    written: float


class LogRequest(Message, tag="log_request", kw_only=True, frozen=True):
    """Request for the run's log from byte `offset` on.

    `sha256` is the hash of the bytes that the requesting machine already has.
    """

    offset: int
    sha256: str


class LogChunk(Message, tag="log_chunk", kw_only=True, frozen=True):
    """Next bytes of a run's log. If `offset` is 0, the copy on the other machine must be replaced, not extended."""

    offset: int
    data: bytes


class RunLiveness(Message, tag="run_liveness", kw_only=True, frozen=True):
    """State of a run whose log is copied to another machine, sent once the entire log has been copied.

    `alive` is True if the run has a supervisor. `execution` is the number of the current execution, as in `RunStarted`.
    """

    execution: int
    alive: bool


class RunCommand(Message, tag="run_command", kw_only=True, frozen=True):
    command: Command


class RunFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """File of a run that another machine may fetch. Its path is relative to the run folder.

    A request sets only `path`. `problem` is the reason why the file can't be read or stored.
    """

    path: str
    run_id: str = ""
    size_bytes: int = 0
    sha256: str = ""
    problem: str = ""


class FetchProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Progress of fetching a file.

    At the end, it has the local `path`, or the `problem` that prevented the transfer.
    """

    done_bytes: int = 0
    total_bytes: int = 0
    path: str = ""
    problem: str = ""


class FollowResult(Message, tag="follow_result", kw_only=True, frozen=True):
    """Result of ``python -m engine.machines.follower``: the local folder of a followed run, or a problem."""

    folder: str = ""
    problem: str = ""


ToNode = NodeRequest | Rendezvous | WorkerCommand | KillWorker | LogRequest | RunCommand | KeepAlive
FromNode = (
    NodeFacts | Listening | FromWorker | WorkerEnded | Sampled | NodeFailed | RunFound | LogChunk | RunLiveness
    | KeepAlive | ShellStarted | Waiting
)  # fmt: skip

TO_NODE = msgspec.json.Decoder(ToNode)
FROM_NODE = msgspec.json.Decoder(FromNode)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or "" if it can't be read."""
    try:
        with open_file(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""
