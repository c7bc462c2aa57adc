"""Properties of strategies: summed results of steps, the data and random numbers of each rank, and precision."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from engine.contract.job import Job
from engine.data.loading.base_loader import Batch
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies import STRATEGIES, base
from engine.strategies.base import (
    ResolvedJob,
    StepResult,
    Strategy,
    find_device_without_bf16,
    forward_precision,
    worker_device,
)
from engine.strategies.collectives import Collectives, sync_metrics
from engine.strategies.memory import device_name
from engine.strategies.single import sum_results
from tests.support.dataset_infos import make_classification_objective
from tests.support.specs import make_worker_spec


def test_sum_results_merges_known_results() -> None:
    none = StepResult(None, None, None)
    parts = [StepResult(torch.tensor(0.5 * n), None, n + 1, torch.tensor([n, 2.0 * n])) for n in (1, 2, 3)]
    loss, correct, images, losses = sum_results([parts[0], none, *parts[1:]])
    assert (float(loss), correct, images, losses.tolist()) == (3.0, None, 9, [6.0, 12.0])  # type: ignore[arg-type, union-attr]
    assert sum_results([none] * 2) == none


def test_metrics_of_all_ranks_are_joined() -> None:
    class TwoRanks(Collectives):
        def all_reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
            return 2 * values

        def all_gather_objects(self, value: Any) -> list[Any]:
            return [torch.empty(0, 0), value]

    measures = make_classification_objective().create_metric()
    measures.counters = torch.tensor([1.0, 3.0])
    measures.rows = torch.ones(2, 3)
    sync_metrics(measures, TwoRanks())
    assert measures.counters.tolist() == [2.0, 6.0]
    assert torch.equal(measures.rows, torch.ones(2, 3))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"strategy": "hsdp", "replicas": 2}, [(0, 4, 1, 0, 1), (1, 4, 1, 1, 1), (2, 4, 1, 2, 1), (3, 4, 1, 3, 1)]),
        ({"strategy": "fsdp_tp", "replicas": 2}, [(0, 2, 1, 0, 1), (0, 2, 1, 0, 0), (1, 2, 1, 1, 1), (1, 2, 1, 1, 0)]),
        ({"strategy": "ddp_pipeline", "replicas": 2}, [(0, 2, 1, 0, 1), (0, 2, 0, 1, 1), (1, 2, 1, 2, 1), (1, 2, 0, 3, 1)]),
    ],
)  # fmt: skip
def test_ranks_differ_in_data_and_random_numbers(
    job: Callable[..., Job], fields: dict[str, Any], expected: list[tuple[int, ...]]
) -> None:
    specs = [make_worker_spec(job(cpus=4, **fields), rank=rank) for rank in range(4)]
    places = [STRATEGIES[fields["strategy"]](spec) for spec in specs]
    assert [(s.data_rank, s.data_world, s.loads_data, s.stream_rank, s.is_counted) for s in places] == expected


def test_shards_in_bf16_are_computed_in_bf16() -> None:
    job = Job.from_fields(precision="fp32", shard_precision="bf16")
    assert [forward_precision(job, STRATEGIES[name].entry) for name in ("ddp", "fsdp")] == ["fp32", "bf16"]


def test_optimizer_gets_trained_parameters_and_float_buffers() -> None:
    strategy, model = (
        STRATEGIES["single"](make_worker_spec(Job.from_fields(devices=("cpu",)))),
        nn.Sequential(nn.BatchNorm1d(2)),
    )
    model.get_parameter("0.weight").requires_grad_(False)
    strategy.local_modules = [model]
    assert [name for name, _ in strategy.parameters()] == ["0.bias"]
    assert [name for name, _ in strategy.buffers()] == ["0.running_mean", "0.running_var"]


def make_gpu_strategy(name: str) -> Strategy:
    """Return the strategy `name` of a process that uses the second of two GPUs, or both if the strategy has one process."""
    devices = ("GPU-a", "GPU-b")
    rank = 1 if STRATEGIES[name].entry.process_per_device else 0
    return STRATEGIES[name](make_worker_spec(Job.from_fields(strategy=name, devices=devices), rank=rank))


def test_worker_uses_its_gpus() -> None:
    gpus = [torch.device("cuda", index) for index in range(2)]
    mixed = Job.from_fields(strategy="ddp", devices=("cpu", "GPU-a", "cpu", "GPU-b"))
    assert [worker_device(make_worker_spec(mixed, rank=rank)) for rank in (1, 3)] == gpus
    assert device_name(make_gpu_strategy("ddp")) == "A GPU of the run"
    assert make_gpu_strategy("ddp").gpus == gpus[1:]
    assert make_gpu_strategy("dp").gpus == gpus
    assert STRATEGIES["single"](make_worker_spec(Job.from_fields(devices=("cpu",)))).gpus == []


def test_gpu_without_bf16_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    capabilities, names = [(8, 0), (7, 5)], ["A100", "T4"]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda gpu: capabilities[gpu.index])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda gpu: names[gpu.index])
    strategy = make_gpu_strategy("dp")
    assert find_device_without_bf16(strategy) == "T4"
    capabilities[1] = (8, 6)
    assert find_device_without_bf16(strategy) == ""


def test_single_device_accumulates_and_evaluates() -> None:
    """Divide three images into five chunks, two of them empty. Each of the others has its own batch statistics."""
    torch.manual_seed(0)
    job = Job.from_fields(devices=("cpu",), accumulation=5, memory_format="channels_last")
    objective, strategy = make_classification_objective(), STRATEGIES["single"](make_worker_spec(job))
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 2))
    strategy.wrap(copy.deepcopy(plain).eval(), objective, (3, 8, 8), ResolvedJob(job))
    assert strategy.model.get_parameter("0.weight").is_contiguous(memory_format=torch.channels_last)
    optimizer_step = OptimizerStep(strategy.parameters(), job, 1, strategy.device)
    batch = Batch(torch.randn(3, 3, 8, 8), torch.tensor([0, 1, 1]), global_size=3, wait_s=0.0)
    torch.manual_seed(1)
    chunks = zip(batch.inputs.split(1), batch.targets.split(1), strict=True)
    loss = sum(cross_entropy(plain(inputs), targets) for inputs, targets in chunks) / 3
    loss.backward()  # type: ignore[union-attr]
    torch.manual_seed(1)
    result = strategy.step(batch, optimizer_step)
    assert (float(result.loss), result.images) == (pytest.approx(loss.item()), 3)  # type: ignore[arg-type]
    gradients, expected = ([parameter.grad for parameter in model.parameters()] for model in (strategy.model, plain))
    torch.testing.assert_close(gradients, expected)
    torch.testing.assert_close(list(strategy.model.buffers()), list(plain.buffers()))

    optimizer_step.zero_grad()
    strategy.run_blank_pass(optimizer_step.backward)  # type: ignore[attr-defined]
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in strategy.model.parameters())
    torch.testing.assert_close(list(strategy.model.buffers()), list(plain.buffers()))

    empty = Batch(torch.zeros(0, 3, 8, 8), torch.zeros(0, dtype=torch.int64), global_size=3, wait_s=0.0)
    plain.load_state_dict(strategy.model.state_dict())
    outputs = plain.eval()(batch.inputs)
    measures = objective.create_metric()
    assert strategy.evaluate([batch, None, empty, batch], measures, lambda: False)
    assert measures.compute()["loss"] == pytest.approx(cross_entropy(outputs, batch.targets).item())
    assert not strategy.evaluate([batch], measures, lambda: True)
    assert all(module.training for module in strategy.model.modules())


def test_blank_images_leave_the_random_numbers_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy: Any = make_gpu_strategy("fsdp")
    monkeypatch.setattr(torch.random, "fork_rng", Mock(return_value=nullcontext()))
    monkeypatch.setattr(strategy, "run_blank_pass", Mock())
    strategy.forward_backward(Batch(torch.zeros(0, 3), torch.zeros(0), 4, 0.0), Mock())
    torch.random.fork_rng.assert_called_once_with([torch.device("cuda", 1)])  # type: ignore[attr-defined]
    strategy.run_blank_pass.assert_called_once()


def test_evaluation_keeps_the_number_of_parts_that_fit() -> None:
    class AtMostTwo(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            sizes.append(len(images))
            if len(images) > 2:
                raise torch.OutOfMemoryError("full")
            return images.mean((2, 3))

    job, objective, sizes = Job.from_fields(devices=("cpu",)), make_classification_objective(), list[int]()
    strategy = STRATEGIES["single"](make_worker_spec(job))
    strategy.wrap(AtMostTwo(), objective, (3, 8, 8), ResolvedJob(job))
    batch = Batch(torch.zeros(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64), global_size=4, wait_s=0.0)
    assert strategy.evaluate([batch, batch], objective.create_metric(), lambda: False)
    assert sizes == [4, 2, 2, 2, 2]


@pytest.mark.parametrize(("strategy", "is_bound"), [("ddp", True), ("dp", False)])
def test_worker_is_bound_to_the_cpus_near_its_gpu(
    monkeypatch: pytest.MonkeyPatch, strategy: str, is_bound: bool
) -> None:
    properties = [SimpleNamespace(pci_domain_id=0, pci_bus_id=bus, pci_device_id=1) for bus in (0x3B, 0xAF)]
    bound: list[object] = []

    def choose_cpus(*arguments: object) -> set[int]:
        bound.append(arguments)
        return {3}

    monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)
    monkeypatch.setattr(base, "choose_cpus", choose_cpus)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _pid, cpus: bound.append(cpus))
    monkeypatch.setattr(base, "use_fast_kernels", lambda: bound.append("fast"))
    chosen = make_gpu_strategy(strategy)
    (Strategy if is_bound else type(chosen)).setup(chosen)
    assert bound == ["fast", *([(1, ["0000:3b:01.0", "0000:af:01.0"], {2, 3}), {3}] if is_bound else [])]


def test_deterministic_job_uses_deterministic_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    try:
        for deterministic in (False, True):
            job = Job.from_fields(devices=("cpu",), deterministic=deterministic)
            STRATEGIES["single"](make_worker_spec(job)).setup()
            assert torch.are_deterministic_algorithms_enabled() is deterministic
            assert torch.backends.cudnn.benchmark is not deterministic
            assert torch.utils.deterministic.fill_uninitialized_memory is not deterministic  # type: ignore[attr-defined]
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
