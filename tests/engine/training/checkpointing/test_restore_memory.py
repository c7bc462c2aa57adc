"""Memory that a rank allocates while it restores a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.contract.job import Job
from tests.engine.strategies.test_tensor_parallel import HEADS
from tests.support.cases import mark_long_cases
from tests.support.restore_memory import MEASURE, get_record_path

Make = Callable[..., Job]
Start = Callable[..., Any]
Write = Callable[[str], dict[str, str]]

LIMITS = {"fsdp": (2, 1.1), "hsdp": (4, 1.1), "zero1": (2, 1.1), "tp": (2, 2.0), "fsdp_tp": (4, 2.0)}
"""Number of CPUs, and maximum of all allocated bytes relative to those of the rank's optimizer state.

Tensor parallelism copies its slices of attention weights twice. DTensor's `distribute_tensor` reaches 11.
"""


@pytest.mark.parametrize("strategy", mark_long_cases(LIMITS, everyday=["tp"]))
def test_resume_allocates_each_tensor_once(job: Make, start: Start, model_file: Write, strategy: str) -> None:
    """Resume with averaged weights and AdamW's state. The weights and their averages are restored in place."""
    cpus, limit = LIMITS[strategy]
    fields = {"strategy": strategy, "cpus": cpus, "batch_size": 8, "optimizer": "adamw", "ema_decay": 0.9}
    fields |= model_file(HEADS.replace("0.1", "0.0").replace("embed_dim=32", "embed_dim=128"))
    first = start(job(epochs=1, **fields)).completed()
    last = str(first.folder / "checkpoints/last.pt")
    resumed = start(job(epochs=2, resume_from=last, **fields), prepare=MEASURE).completed()
    state = first.checkpoint()["optimizer"]["state"]
    total = sum(tensor.nbytes for tensors in state.values() for tensor in tensors.values())
    for rank in range(cpus):
        result = json.loads(get_record_path(resumed.folder, rank).read_text())
        assert total / cpus * 0.9 < result["kept"] < total * 0.6
        assert result["allocated"] < limit * result["kept"]
