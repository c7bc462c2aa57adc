"""Process with torch's elastic agent, which starts a machine's workers and stops them all if one fails.

The node itself does not import torch. It forks the agent from a process that has already imported torch, and the agent
forks the workers.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import shutil
import socket
import tempfile
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from engine.contract.nodes import NodeRequest, Rendezvous
from engine.machines.addresses import bind_collectives
from engine.system import linux
from engine.system.format import describe_exit

RENDEZVOUS_TIMEOUT_S = 120
SHUTDOWN_S = 5
"""Seconds to wait for the other workers to exit after one has failed."""
_CONTEXT = multiprocessing.get_context("forkserver")


class AgentFailed(Exception):  # noqa: N818 - describes the event
    """Raised when torch's elastic agent itself fails, not a worker. The message is the reason."""


class _Result(msgspec.Struct):
    """Exit codes of the workers by rank, or the error of the agent. A code is None if the agent stopped the worker."""

    codes: dict[int, int | None] = {}
    error: str = ""


def preload() -> None:
    """Start the process that later forks the agent, so that it imports torch in the background."""
    _CONTEXT.set_forkserver_preload(["engine.machines.preload"])
    multiprocessing.forkserver.ensure_running()


class Agent:
    """Process with torch's elastic agent, which runs the workers of this machine. Any thread may call `kill`."""

    def __init__(
        self, request: NodeRequest, rendezvous: Rendezvous, listener: socket.socket | None, node_socket: Path
    ) -> None:
        """Start the agent process, which starts the workers that `request` asks for.

        On the first node, the agent process takes over `listener`, which listens at the address of the rendezvous. On
        other nodes, it is None. The node receives messages from its workers on the socket `node_socket`.
        """
        self._ranks = [spec.rank for spec in request.specs]
        self._connection, child_end = _CONTEXT.Pipe(duplex=False)
        self._is_killed = False
        self._process = _CONTEXT.Process(
            target=_serve, args=(request, rendezvous, listener, str(node_socket), child_end)
        )
        self._process.start()
        child_end.close()
        if listener is not None:
            listener.close()

    def kill(self) -> None:
        """Kill the agent and its workers, even if they are waiting for other machines."""
        self._is_killed = True
        self._process.kill()

    def wait(self) -> dict[int, int | None]:
        """Wait until the agent ends, and return the exit codes of the workers by rank.

        The code is None for workers that the agent has stopped, and for all workers after `kill`.

        Raises:
            AgentFailed: The agent failed, or something other than `kill` has killed it.
        """
        with self._connection:
            try:
                result = msgspec.json.decode(self._connection.recv_bytes(), type=_Result)
            except EOFError:  # the process has died
                result = None
        self._process.join()
        if self._is_killed:
            return dict.fromkeys(self._ranks)
        if result is None:
            raise AgentFailed(f"the agent that runs the workers {describe_exit(self._process.exitcode or 0)}")
        if result.error:
            raise AgentFailed(result.error)
        return result.codes


def _serve(
    request: NodeRequest,
    rendezvous: Rendezvous,
    listener: socket.socket | None,
    node_socket: str,
    connection: Connection,
) -> None:
    """Run the agent in this process, and send its result over `connection`. The process exits with its parent."""
    linux.die_with_parent(os.getppid())
    linux.name_process("footplate-agent")
    try:
        bind_collectives(rendezvous.local_address, infiniband=rendezvous.infiniband)
        result = _Result(codes=launch_workers(request, rendezvous, listener, node_socket))
    except Exception as error:
        traceback.print_exc()
        result = _Result(error=f"{type(error).__name__}: {error}")
    connection.send_bytes(msgspec.json.encode(result))


def launch_workers(
    request: NodeRequest, rendezvous: Rendezvous, listener: socket.socket | None, node_socket: str
) -> dict[int, int | None]:
    """Run the workers until all have ended. Return their exit codes by rank, or None for those that torch has ended.

    This registers Footplate's rendezvous with torch in this process.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from engine.machines import worker
    from engine.machines.rendezvous import NAME, OneAddressRendezvous

    def handler(parameters: RendezvousParameters) -> OneAddressRendezvous:
        return OneAddressRendezvous(
            rendezvous.address,
            rendezvous.port,
            rank=request.node,
            nodes=request.nodes,
            run_id=parameters.run_id,
            timeout_s=RENDEZVOUS_TIMEOUT_S,
            listener=listener,
        )

    rendezvous_handler_registry.register(NAME, handler)
    ranks = [spec.rank for spec in request.specs]
    logs = tempfile.mkdtemp(dir=Path(node_socket).parent)  # stays empty, because workers write their own logs
    config = LaunchConfig(
        min_nodes=request.nodes,
        max_nodes=request.nodes,
        nproc_per_node=len(ranks),
        logs_specs=DefaultLogsSpecs(log_dir=logs, redirects=Std.NONE),
        run_id=f"{request.run_id}-{request.attempt}",
        rdzv_backend=NAME,
        rdzv_endpoint=f"{rendezvous.address}:{rendezvous.port}",
        max_restarts=0,
        start_method="fork",
        local_addr=rendezvous.local_address,
        shutdown_timeout=SHUTDOWN_S,
    )
    try:
        elastic_launch(config, worker.run)(node_socket)
    except ChildFailedError as error:  # lists only the workers that failed by themselves
        return dict.fromkeys(ranks) | {rank: failure.exitcode for rank, failure in error.failures.items()}
    finally:
        shutil.rmtree(logs, ignore_errors=True)
    return dict.fromkeys(ranks, 0)
