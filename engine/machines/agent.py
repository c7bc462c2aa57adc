"""torch's own elastic agent, which starts the workers of one machine and ends all when one fails.

The node itself imports no torch. A process that does so once is forked into the agent, and the agent into the
workers, so that each has it at once.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import shutil
import signal
import socket
import tempfile
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from engine.contract.nodes import Meet, NodeOrder
from engine.machines.addresses import interface_of
from engine.system import linux
from engine.system.format import exit_words

MEET_S = 120
"""How long the machines may take to meet."""
SHUTDOWN_S = 5
"""How long workers may take to end when another has failed, before they are killed."""
_CONTEXT = multiprocessing.get_context("forkserver")


class AgentFailed(Exception):  # noqa: N818  (it says what happened)
    """The text is why."""


class _End(msgspec.Struct):
    """What the agent says at last: the exit codes of its workers by rank, or its own fault."""

    codes: dict[int, int | None] = {}
    fault: str = ""


def preload() -> None:
    """Begins to import, in a process of its own, what the agent and the workers need."""
    _CONTEXT.set_forkserver_preload(["engine.machines.preload"])
    multiprocessing.forkserver.ensure_running()


class Agent:
    """An agent, in a process of its own, that runs the order's workers to their end. `kill` may be called by any
    thread.
    """

    def __init__(self, order: NodeOrder, meet: Meet, listener: socket.socket | None, node_socket: Path) -> None:
        self._ranks = [spec.rank for spec in order.specs]
        self._connection, theirs = _CONTEXT.Pipe(duplex=False)
        self._killed = False
        self._process = _CONTEXT.Process(target=_serve, args=(order, meet, listener, str(node_socket), theirs))
        self._process.start()
        theirs.close()
        if listener is not None:
            listener.close()

    def kill(self) -> None:
        """Ends it with its workers, which all may still wait for other machines."""
        self._killed = True
        with suppress(ProcessLookupError):
            os.kill(self._process.pid or 0, signal.SIGKILL)

    def codes(self) -> dict[int, int | None]:
        """The exit codes by rank, once all have ended, None for workers that were ended because of another. Raises
        AgentFailed.
        """
        with self._connection:
            try:
                end = msgspec.json.decode(self._connection.recv_bytes(), type=_End)
            except EOFError:
                end = None
        self._process.join()
        if self._killed:
            return dict.fromkeys(self._ranks)
        if end is None:
            raise AgentFailed(f"the agent that runs the workers {exit_words(self._process.exitcode or 0)}")
        if end.fault:
            raise AgentFailed(end.fault)
        return end.codes


def _serve(
    order: NodeOrder, meet: Meet, listener: socket.socket | None, node_socket: str, connection: Connection
) -> None:
    """Runs the agent in this process, which ends with that which it was forked from."""
    linux.die_with_parent(os.getppid())
    linux.name_process("footplate-agent")
    try:
        interface = interface_of(meet.own_address)
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        os.environ["NCCL_SOCKET_IFNAME"] = f"={interface}"  # else NCCL takes every interface that begins so
        end = _End(codes=_launch(order, meet, listener, node_socket))
    except Exception as error:
        traceback.print_exc()
        end = _End(fault=f"{type(error).__name__}: {error}")
    connection.send_bytes(msgspec.json.encode(end))


def _launch(order: NodeOrder, meet: Meet, listener: socket.socket | None, node_socket: str) -> dict[int, int | None]:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from engine.machines import rendezvous, worker

    def handler(parameters: RendezvousParameters) -> rendezvous.OneAddressRendezvous:
        return rendezvous.OneAddressRendezvous(
            meet.address,
            meet.port,
            rank=order.node,
            nodes=order.nodes,
            run_id=parameters.run_id,
            timeout_s=MEET_S,
            listener=listener,
        )

    rendezvous_handler_registry.register(rendezvous.NAME, handler)
    ranks = [spec.rank for spec in order.specs]
    logs = tempfile.mkdtemp(dir=Path(node_socket).parent)  # the workers write their own
    config = LaunchConfig(
        min_nodes=order.nodes,
        max_nodes=order.nodes,
        nproc_per_node=len(ranks),
        logs_specs=DefaultLogsSpecs(log_dir=logs, redirects=Std.NONE),
        run_id=f"{order.run_id}-{order.attempt}",
        rdzv_backend=rendezvous.NAME,
        rdzv_endpoint=f"{meet.address}:{meet.port}",
        max_restarts=0,
        start_method="fork",
        local_addr=meet.own_address,
        shutdown_timeout=SHUTDOWN_S,
    )
    try:
        elastic_launch(config, worker.run)(node_socket)
    except ChildFailedError as error:
        return dict.fromkeys(ranks) | {rank: failure.exitcode for rank, failure in error.failures.items()}
    finally:
        shutil.rmtree(logs, ignore_errors=True)
    return dict.fromkeys(ranks, 0)
