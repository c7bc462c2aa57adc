"""Explanations of NCCL errors in the messages of exceptions that torch raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.processes.failures import describe_death
from engine.processes.nccl_errors import extract_description, find_known_error

SYSTEM = "NCCL error in: /pytorch/NCCLUtils.cpp:77, unhandled system error, NCCL version 2.27.5\nncclSystemError: System call.\n"
CUDA = "NCCL error in: /pytorch/NCCLUtils.cpp:77, unhandled cuda error, NCCL version 2.27.5\nncclUnhandledCudaError: Failed.\n"
INTERNAL = (
    "NCCL error in: /pytorch/NCCLUtils.cpp:77, internal error, NCCL version 2.27.5\nncclInternalError: Check failed.\n"
)
USAGE = (
    "NCCL error in: /pytorch/ProcessGroupNCCL.cpp:1333, invalid usage, NCCL version 2.27.5\nncclInvalidUsage: Usage.\n"
)
REMOTE = "NCCL error in: /pytorch/NCCLUtils.cpp:77, remote process exited or there was a network error\nncclRemoteError: A call.\n"
SHARED = "Error while creating shared memory segment /dev/shm/nccl-0Wg7aQ (size 33030528), error: No space left on device (28)"

CASES = [
    (f"{SYSTEM}Last error:\n{SHARED}", "--shm-size", False),
    (
        f"{CUDA}Last error:\nCuda failure 217 'peer access is not supported between these two devices'",
        "NCCL_P2P_DISABLE",
        False,
    ),
    (f"{CUDA}Last error:\nCuda failure 802 'system not yet initialized'", "nvidia-fabricmanager", False),
    (
        "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "nvidia-fabricmanager",
        False,
    ),
    (
        f"{USAGE}Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 3000",
        "Choose each GPU once",
        False,
    ),
    (f"{INTERNAL}Last error:\nBootstrap : no socket interface found", "NCCL_SOCKET_IFNAME", False),
    (f"{SYSTEM}Last error:\nCall to ibv_reg_mr failed with error Cannot allocate memory", "NCCL_IB_DISABLE", False),
    (f"{SYSTEM}Last error:\nCall to socket failed : Too many open files", "ulimit -n", False),
    ("Error 803: system has unsupported display driver / cuda driver combination", "newer driver", False),
    (f"{USAGE}Last error:\nMismatched NCCL version detected : rank 0 2.27.5 rank 1 2.28.9", "same version", False),
    (f"{USAGE}Last error:\nsomething else", "wrongly", False),
    ("CUDA error: invalid device ordinal\nGPU device may be out of range", "nvidia-smi", True),
    ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)", "hangs", True),
    (
        f"{REMOTE}Last error:\nsocketProgressOpt: Call to recv from 10.0.0.8<51234> failed : Connection reset",
        "Lost",
        True,
    ),
]


@pytest.mark.parametrize(("text", "remedy", "is_transient"), CASES)
def test_known_error_gives_remedy(text: str, remedy: str, is_transient: bool) -> None:
    error = find_known_error(text)
    assert error is not None
    assert remedy in error.meaning
    assert error.is_transient == is_transient


@pytest.mark.parametrize(
    "text", ["Connection closed by peer", "CUDA error: unspecified launch failure", f"{INTERNAL}odd"]
)
def test_other_errors_are_not_known(text: str) -> None:
    assert find_known_error(text) is None


def test_last_error_is_nccls_own() -> None:
    assert extract_description(f"{SYSTEM}Last error:\n{SHARED}\nmore") == SHARED
    assert extract_description("NCCL error\nLast error:\n") == "NCCL error"


def test_death_by_nccls_watchdog_is_explained(tmp_path: Path) -> None:
    log = tmp_path / "worker-1.log"
    for text, kind, remedy, description in (
        (SYSTEM, "error", "--shm-size", SHARED),
        (REMOTE, "fault", "Lost", "a call failed"),
    ):
        log.write_text(f"terminate called\n{text}Last error:\n{description}\n")
        failed = describe_death(1, -6, log)
        assert (failed.kind, failed.rank) == (kind, 1)
        assert remedy in failed.cause
        assert failed.cause.endswith(f"Rank 1 was killed by SIGABRT (signal 6): {description}")
