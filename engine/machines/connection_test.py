"""``footplate node --test-connections``: test connections between machines with process groups, opened as in a run.

Each line of standard input is a test as JSON, and each is answered with a `ConnectionTestResult`. The machine to which
the others connect answers twice, first with its port.
"""

from __future__ import annotations

import os
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from engine.contract.nodes import ConnectionTest, ConnectionTestResult
from engine.contract.protocol import ENCODE
from engine.machines.addresses import bind_collectives, listen
from engine.machines.link import write_all
from engine.system.stdio import exit_now

if TYPE_CHECKING:
    import torch.distributed as dist

_STORE_TIMEOUT = timedelta(seconds=5)
_GLOO_TIMEOUT = timedelta(seconds=10)
NCCL_TIMEOUT_S = 60.0
_NUMBERS = 1 << 18
"""Number of float32 values that machines exchange to test their connection."""


def serve(address: str, *, infiniband: bool) -> NoReturn:
    """Run the connection tests requested over standard input, and exit the process when this input is closed.

    Each result is printed as a line of JSON, first one that says if tests are possible at all. In a test, the machine
    to which the others connect first answers with its port. `address` is the address of this machine. If `infiniband`
    is False, NCCL does not use InfiniBand.
    """
    output = os.dup(1)
    os.dup2(2, 1)  # prints of libraries must not mix with the answers

    def answer(result: ConnectionTestResult) -> None:
        write_all(output, ENCODE.encode(result) + b"\n")

    try:
        bind_collectives(address, infiniband=infiniband)
    except ValueError as error:
        answer(ConnectionTestResult(problem=str(error)))
        exit_now(1)
    import torch.distributed as dist

    answer(ConnectionTestResult())
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=ConnectionTest)
        try:
            if request.address:
                store = dist.TCPStore(
                    request.address, request.port, is_master=False, timeout=_STORE_TIMEOUT, wait_for_workers=False
                )
            else:
                with listen(address, request.port) as listener:
                    port = listener.getsockname()[1]
                    store = dist.TCPStore(
                        address, port, is_master=True, timeout=_STORE_TIMEOUT,
                        wait_for_workers=False, master_listen_fd=listener.detach(),
                    )  # fmt: skip
                answer(ConnectionTestResult(port=port))
        except (OSError, RuntimeError) as error:
            answer(ConnectionTestResult(problem=_extract_last_line(error)))
            continue
        answer(ConnectionTestResult(has_connected=True, problem=_test_exchange(store, request)))
    exit_now(0)


def _test_exchange(store: dist.Store, request: ConnectionTest) -> str:
    """Sum a number with the other machines in the test `request`, over gloo or NCCL, and return the error or "".

    `store` is the key-value store through which the machines find each other.
    """
    try:
        if request.backend == "nccl":
            _all_reduce_on_gpus(store, request)
        elif request.rank:
            _all_reduce_in_pair(store, request.rank, 1)  # only with rank 0
        else:
            # In threads, since a machine that does not respond must not delay the others.
            others = range(1, request.ranks)
            threads = [threading.Thread(target=_answer_in_pair, args=(store, other), daemon=True) for other in others]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    except Exception as error:
        return _extract_last_line(error)
    return ""


def _answer_in_pair(store: dist.Store, other: int) -> None:
    """Take part in the sum that the machine with rank `other` computes with this one. Errors are only printed."""
    try:
        _all_reduce_in_pair(store, other, 0)
    except Exception as error:  # the other machine reports the failure
        print(error, file=sys.stderr)


def _all_reduce_in_pair(store: dist.Store, other: int, rank_in_pair: int) -> None:
    """Compute a sum over gloo within the pair of the first machine and the machine with rank `other`.

    `rank_in_pair` is 0 for the first machine and 1 for the other one. Raises RuntimeError.
    """
    import torch
    import torch.distributed as dist

    group: Any = dist.ProcessGroupGloo(dist.PrefixStore(str(other), store), rank_in_pair, 2, _GLOO_TIMEOUT)
    group.allreduce([torch.ones(_NUMBERS)]).wait()


def _all_reduce_on_gpus(store: dist.Store, request: ConnectionTest) -> None:
    """Compute a sum over the first GPU of each machine with NCCL, on all machines together. Raises RuntimeError."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "nccl",
        store=dist.PrefixStore("nccl", store),
        rank=request.rank,
        world_size=request.ranks,
        timeout=timedelta(seconds=NCCL_TIMEOUT_S),
        device_id=torch.device("cuda", 0),
    )
    dist.all_reduce(torch.ones(_NUMBERS, device="cuda"))
    torch.cuda.synchronize()
    dist.destroy_process_group()


def _extract_last_line(error: Exception) -> str:
    """Return the last line of an error's message, where NCCL describes the cause."""
    lines = str(error).strip().splitlines()
    return lines[-1].rstrip(".") if lines else type(error).__name__
