"""Measured costs of the segments of real models, and of transfers between real processes."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, fx, nn
from torchvision import models

from engine.contract.job import Job
from engine.contract.model_split import ModelSplit
from engine.optim.optimizer_step import OptimizerStep
from engine.parallel.layout import Layout
from engine.parallel.split_points import CannotSplit, compute_stages
from engine.strategies.base import autocast
from engine.strategies.pipelining import stage_costs
from engine.strategies.pipelining.model_split import trace
from engine.strategies.pipelining.stage_costs import (
    TRANSFER_BYTES,
    SegmentMeasurement,
    _Run,
    assemble_split,
    measure,
    measure_free_bytes,
    measure_rank,
    measure_seconds_per_byte,
    measure_update_s,
    select_split_points,
)
from tests.support.process_groups import use_fake_group

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Limit torch to one thread, as in a worker that shares the CPU."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


ROOT = Path(__file__).parents[4]


def _measure_segments(model: nn.Module, *shape: int, precision: str = "fp32") -> list[SegmentMeasurement]:
    context = partial(autocast, CPU, precision)
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return measure(model, trace(model), inputs, clock=time.perf_counter, autocast=context)


def _make_mixed_model() -> nn.Sequential:
    """Return a model that contains BatchNorm, random layers and frozen layers."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten(), nn.Linear(288, 4)
    )
    model[0].requires_grad_(False)
    model[1].eval()
    return model


def test_measure_has_no_side_effects() -> None:
    model = _make_mixed_model()
    model[5].weight.grad = torch.ones_like(model[5].weight)
    names = [name for name, _ in model.named_parameters()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    addresses = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    _measure_segments(model, 2, 3, 8, 8)
    assert torch.equal(torch.get_rng_state(), state)
    assert [name for name, _ in model.named_parameters()] == names
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert addresses == {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model[5].weight.grad, torch.ones_like(model[5].weight))
    assert all(parameter.grad is None for name, parameter in model.named_parameters() if name != "5.weight")


def test_measure_times_both_passes() -> None:
    model = models.resnet18()
    found = _measure_segments(model, 2, 3, 64, 64)
    assert len(found) == len(trace(model).points) + 1
    assert all(segment.forward_s > 0 and segment.backward_s > 0 for segment in found)
    # A 7x7 convolution of a large image takes longer than the pooling at the end.
    assert found[0].forward_s > found[-2].forward_s


def test_run_takes_the_fastest_forward_and_backward_pass() -> None:
    times = [0.0]
    for forward_ms, backward_ms in ((5, 7), (1, 3), (4, 2)):
        # The clock is read at the start and the end of each pass, and between two runs.
        for passed_ms in (0.25, forward_ms, 0.5, backward_ms, 0.125):
            times.append(times[-1] + passed_ms / 1000)
    run = _Run(fx.symbolic_trace(nn.Linear(4, 3)), torch.randn(2, 4), iter(times).__next__, nullcontext)
    run.repeat(budget_s=0.02)
    assert run.measured[:2] == (pytest.approx(0.001), pytest.approx(0.002))
    assert run.measured.output_bytes == 2 * 3 * 4
    assert run.output.shape == (2, 3)


def test_measure_of_frozen_segments() -> None:
    model = _make_mixed_model()
    model[1].requires_grad_(False)
    found = _measure_segments(model, 2, 3, 8, 8)
    assert found[0].backward_s == 0.0
    assert found[0].activation_bytes == found[0].output_bytes  # includes the output
    assert found[-1].backward_s > 0.0


def test_measure_counts_activations_once() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.Sigmoid(), nn.Linear(32, 8))
    images, real = 4, 4  # a float has four bytes
    found = _measure_segments(model, images, 16)
    # A layer saves its input, which the previous segment has counted; the sigmoid saves its output.
    assert [segment.activation_bytes for segment in found] == [images * 32 * real, images * 32 * real, 8 * 16]
    assert [segment.output_bytes for segment in found] == [images * 32 * real, images * 32 * real, 8 * 16]


def test_measure_counts_what_autograd_saves() -> None:
    model = models.alexnet(dropout=0.0)
    inputs = torch.randn(2, 3, 64, 64)
    excluded = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), inputs)}
    saved: dict[int, tuple[int, Tensor]] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in excluded:
            saved[storage.data_ptr()] = storage.nbytes(), tensor.detach()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(inputs)
    total = sum(size for size, _ in saved.values()) + output.nbytes
    parts = sum(segment.activation_bytes for segment in _measure_segments(model, 2, 3, 64, 64))
    # Segments count the outputs that they send, even if autograd doesn't need them.
    assert total <= parts <= 1.25 * total


def test_measure_with_bf16_halves_outputs() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 8))
    found = _measure_segments(model, 4, 16, precision="bf16")
    assert [segment.output_bytes for segment in found] == [4 * 32 * 2, 4 * 8 * 2]


def test_measure_reports_progress() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    fractions: list[float] = []
    ticks = itertools.count()

    def clock() -> float:
        return next(ticks) * 0.03

    measure(model, trace(model), torch.randn(2, 4), clock=clock, autocast=nullcontext, progress=fractions.append)
    assert clock() < 3.0, "the third runs, which aren't necessary, would exceed the time"
    assert fractions == [0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0, 1.0]


def test_measure_holds_one_segment_on_device() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    traces = trace(model)
    gc.freeze()  # don't count existing objects
    peak = 0

    def clock() -> float:
        nonlocal peak
        peak = max(peak, _parameters_alive())
        return time.perf_counter()

    try:
        measure(model, traces, torch.randn(2, 4), clock=clock, autocast=nullcontext)
    finally:
        gc.unfreeze()
    assert peak == 2  # a layer's weight and bias


def test_measure_needs_no_weights() -> None:
    on_cpu, on_meta = (
        _measure_segments(_make_mixed_model(), 2, 3, 8, 8),
        _measure_segments(_make_mixed_model().to("meta"), 2, 3, 8, 8),
    )
    assert [each[2:] for each in on_meta] == [each[2:] for each in on_cpu]
    assert all(each.forward_s > 0 for each in on_meta)


def _parameters_alive() -> int:
    return sum(type(thing) is nn.Parameter and thing.device == CPU for thing in gc.get_objects())


@pytest.mark.long
def test_measure_is_fast() -> None:
    model = models.resnet18()
    traces = trace(model)
    started = time.process_time()  # other work on the machine doesn't count
    measure(model, traces, torch.randn(4, 3, 64, 64), clock=time.perf_counter, autocast=nullcontext)
    assert time.process_time() - started < 2.0


def test_free_bytes_are_shared_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, shared = measure_free_bytes(CPU, 1), measure_free_bytes(CPU, 4)
    assert 0 < shared < alone / 2
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (700, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 200)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 50)
    assert measure_free_bytes(torch.device("cuda"), 4) == int(850 * stage_costs.USABLE_FRACTION)


def test_fastest_update_and_fastest_round_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_costs, "UPDATED_PARAMETERS", 16)
    times = iter((0.0, 8.0, 10.0, 12.0, 20.0, 24.0))
    create_step = Mock(wraps=OptimizerStep)
    monkeypatch.setattr(stage_costs, "OptimizerStep", create_step)
    assert measure_update_s(Job(), CPU, lambda: next(times)) == 2.0 / 16
    assert sum(tensor.numel() for _, tensor in create_step.call_args.args[0]) == 16
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for power in (-1, 1):  # the clock becomes slower or faster, as if the opposite were true of the work
        readings = [0.0]

        def clock(power: int = power, readings: list[float] = readings) -> float:
            readings.append(readings[-1] + 1e-6 * len(readings) ** power)
            return readings[-1]

        first, _ = measure(model, trace(model), torch.randn(2, 4), clock=clock, autocast=nullcontext)
        middle = len(readings) // 2
        assert max(first.forward_s, first.backward_s) < readings[middle] - readings[middle - 1]


def _split(model: nn.Module, job: Job, layout: Layout, slower: float = 1.0) -> ModelSplit:
    traces = trace(model)
    costs = measure_rank(
        model,
        traces,
        torch.randn(2, 4),
        job=job,
        device="cpu",
        workers=len(job.parallel.devices),
        clock=time.perf_counter,
        autocast=nullcontext,
    )
    even = tuple(each._replace(forward_s=1.0, backward_s=2.0) for each in costs.segments)
    slow = tuple(
        each._replace(forward_s=slower, backward_s=2 * slower, activation_bytes=99, output_bytes=88)
        for each in costs.segments
    )
    places = [costs._replace(segments=even, update_s=1.0), costs._replace(segments=slow, update_s=2.0)]
    return assemble_split(model, traces, job=job, layout=layout, gathered=places, link_seconds_per_byte=1e-9)


def _row() -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))


def test_assemble_merges_measurements() -> None:
    job = Job.from_fields(
        strategy="ddp_pipeline", devices=("cpu",) * 4, batch_size=128, ema_decay=0.9, pipeline_schedule="1f1b",
        accumulation=2, activation_checkpointing=True,
    )  # fmt: skip
    model = _row()
    model[0].requires_grad_(False)
    split = _split(model, job, Layout(2, 2, (0, 1), 8), slower=2.0)
    updates_s = [0.0] + [20 / 16] * 5  # of 20 parameters, divided among 16 microbatches
    assert [each.backward_s for each in split.segments] == [(2.0 + each, 4.0 + 2 * each) for each in updates_s]
    assert {(each.forward_s, each.activation_bytes, each.output_bytes) for each in split.segments} == {
        ((1.0, 2.0), 99, 88)
    }
    assert (split.phased, split.recomputed, split.seconds_per_byte, split.devices) == (
        False,
        True,
        1e-9,
        ("cpu", "cpu"),
    )
    assert split.chosen
    assert split.split_points == ("_3",)  # the slower device gets two of six layers
    assert (split.microbatch_size, split.microbatches, split.in_flight, split.state_bytes) == (4, 8, (2, 1), 16)
    assert [stage.parameters for stage in compute_stages(split)] == [80, 40]
    assert [stage.layers for stage in compute_stages(split)] == [4, 2]
    assert [(stage.first_module, stage.last_module) for stage in compute_stages(split)] == [("0", "3"), ("4", "5")]
    assert [place.module for place in select_split_points(trace(model), split)] == ["3"]


def test_assemble_validates_given_split_points() -> None:
    job = Job.from_fields(strategy="pipeline", devices=("cpu", "cpu"), batch_size=32, split_points=("_0",))
    split = _split(_row(), job, Layout(1, 2, (0, 1), 8))
    assert (split.split_points, split.chosen, split.phased, split.recomputed) == (("_0",), False, True, False)
    assert split.state_bytes == 12
    for split_points in (("_9",), ("_0", "_1")):
        wrong = Job.from_fields(strategy="pipeline", devices=("cpu", "cpu"), batch_size=32, split_points=split_points)
        with pytest.raises(CannotSplit) as refused:
            _split(_row(), wrong, Layout(1, 2, (0, 1), 8))
        assert refused.value.field == "split_points"
        assert refused.value.remedy


def test_assemble_refuses_indivisible_batch() -> None:
    job = Job.from_fields(strategy="pipeline", devices=("cpu", "cpu"), batch_size=31)
    with pytest.raises(CannotSplit, match="can't be divided") as refused:
        _split(_row(), job, Layout(1, 2, (0, 1), None))
    assert refused.value.field == "batch_size"


def test_seconds_per_byte_are_those_of_the_fastest_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time transfers to another rank that is only simulated: 8, 2 and 4 s."""
    times = iter((0.0, 8.0, 10.0, 12.0, 20.0, 24.0))
    monkeypatch.setattr(stage_costs.time, "perf_counter", lambda: next(times))
    operations: list[object] = []
    monkeypatch.setattr(dist, "all_reduce", lambda _slowest, operation, group: operations.append(operation))
    with use_fake_group(rank=0, world_size=2):
        assert measure_seconds_per_byte(None, CPU) == 2.0 / TRANSFER_BYTES
    assert operations == [dist.ReduceOp.MAX], "the slowest link counts"


_RANK = """
import os, sys
import torch, torch.distributed as dist
from engine.strategies.distributed import LOOPBACK
from engine.strategies.pipelining.stage_costs import measure_seconds_per_byte
os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK
rank, folder, world = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", store=dist.FileStore(folder + "/store", world), rank=rank, world_size=world)
print(measure_seconds_per_byte(None, torch.device("cpu")))
dist.destroy_process_group()
"""


@pytest.mark.long
def test_seconds_per_byte_is_equal_on_all_ranks(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK, str(rank), str(tmp_path), "3"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for rank in range(3)
    ]
    try:
        answers = {rank.communicate(timeout=150)[0] for rank in ranks}
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert len(answers) == 1
    assert 1e-12 < float(answers.pop()) < 1e-5
