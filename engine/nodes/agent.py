"""torch's own elastic agent, which starts the workers of one machine and ends all when one fails."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import shutil
import socket
import tempfile
from pathlib import Path

from engine.contract.nodes import Meet, NodeOrder

MEET_S = 120
"""How long the machines may take to meet."""
SHUTDOWN_S = 5
"""How long workers may take to end when another has failed, before they are killed."""
_START = "forkserver"


def preload() -> None:
    """Begins to import, in a process of its own, what the workers will be forked from."""
    multiprocessing.get_context(_START).set_forkserver_preload(["engine.nodes.preload"])
    multiprocessing.forkserver.ensure_running()


def run_agent(order: NodeOrder, meet: Meet, listener: socket.socket | None, node_socket: Path) -> dict[int, int | None]:
    """Has the order's workers run, from the main thread, to their end. The exit codes by rank, None for workers that the agent
    ended because another had failed."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from engine.nodes import rendezvous, worker

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
    logs = tempfile.mkdtemp(prefix="footplate-")  # the workers write their own
    config = LaunchConfig(
        min_nodes=order.nodes,
        max_nodes=order.nodes,
        nproc_per_node=len(ranks),
        logs_specs=DefaultLogsSpecs(log_dir=logs, redirects=Std.NONE),
        run_id=f"{order.run_id}-{order.attempt}",
        rdzv_backend=rendezvous.NAME,
        rdzv_endpoint=f"{meet.address}:{meet.port}",
        max_restarts=0,
        start_method=_START,
        local_addr=meet.own_address,
        shutdown_timeout=SHUTDOWN_S,
    )
    try:
        elastic_launch(config, worker.run)(str(node_socket))
    except ChildFailedError as error:
        return dict.fromkeys(ranks) | {rank: failure.exitcode for rank, failure in error.failures.items()}
    finally:
        shutil.rmtree(logs, ignore_errors=True)
    return dict.fromkeys(ranks, 0)
