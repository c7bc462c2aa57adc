"""Jobs that a strategy must reject before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.contract.events import Failed
from engine.contract.job import Job
from engine.strategies import STRATEGIES, StrategyError
from tests.support.specs import make_worker_spec


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"strategy": "dp", "cpus": 2}, "CUDA GPUs only"),
        ({"strategy": "dp", "devices": ("GPU-1",)}, "at least two GPUs"),
        ({"strategy": "ddp", "cpus": 2, "sync_batchnorm": True}, "runs on GPUs only"),
        ({"strategy": "pipeline", "cpus": 2, "microbatches": 5}, "equal microbatches"),
        ({"strategy": "pipeline", "cpus": 2, "accumulation": 5}, "equal microbatches"),
        (
            {"strategy": "pipeline", "cpus": 2, "microbatches": 1, "pipeline_schedule": "1f1b"},
            "run with 1 microbatches",
        ),
        (
            {"strategy": "pipeline", "cpus": 2, "activation_checkpointing": True, "pipeline_schedule": "zbv"},
            "Choose 1F1B",
        ),
    ],
)
def test_strategies_refuse_impossible_settings(job: Callable[..., Job], fields: dict[str, Any], text: str) -> None:
    rejected = job(**fields)
    with pytest.raises(StrategyError, match=text):
        STRATEGIES[rejected.resolved_strategy](make_worker_spec(rejected)).setup()


TIED_VIEWS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Linear(768, 16)
        self.head = nn.Linear(16, classes)
        self.head.bias = nn.Parameter(self.stem.bias.detach()[:classes])

    def forward(self, images):
        return self.head(self.stem(images.flatten(1)).relu())

def build_model(num_classes):
    return Net(num_classes)
"""


def test_fsdp_refuses_tied_views(
    job: Callable[..., Job], start: Callable[..., Any], model_file: Callable[[str], dict[str, str]]
) -> None:
    group = start(job(cpus=2, strategy="fsdp", **model_file(TIED_VIEWS)))
    assert group.finish() == [1, 1]
    causes = {failed.cause for failed in group.of(Failed)}
    assert len(causes) == 1
    cause = causes.pop()
    assert "head.bias" in cause
    assert "share memory" in cause
    assert "DistributedDataParallel" in cause


def test_pipeline_refuses_too_many_stages(
    job: Callable[..., Job], start: Callable[..., Any], model_file: Callable[[str], dict[str, str]]
) -> None:
    fields = model_file(
        "from torch import nn\n"
        "def build_model(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.Linear(8, num_classes))\n"
    )
    group = start(job(cpus=3, strategy="pipeline", **fields))
    assert group.finish() == [1, 1, 1]
    causes = {failed.cause for failed in group.of(Failed)}
    assert len(causes) == 1
    assert "it can be split at 1 position, and 3 stages need 2" in causes.pop()
