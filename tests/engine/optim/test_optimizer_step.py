"""Optimizer steps, learning rate schedules, and optimizer state by parameter name."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.contract.idle_fields import find_idle_by_needs
from engine.contract.job import FIELDS, Job
from engine.optim.optimizer_step import Group, OptimizerStep, merge_states
from tests.support.same_states import find_differences

CPU = torch.device("cpu")


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))


def _optimizer_step(
    model: nn.Module, sum_over_shards: Callable[[Tensor], Tensor] = lambda value: value, **fields: Any
) -> OptimizerStep:
    return OptimizerStep(list(model.named_parameters()), Job.from_fields(**fields), 4, CPU, sum_over_shards)


def _step(model: nn.Module, optimizer_step: OptimizerStep) -> None:
    optimizer_step.zero_grad()
    optimizer_step.backward(model(torch.ones(2, 5)).square().sum())
    optimizer_step.step()


def _rates(schedule: str, epochs: int) -> list[float]:
    model = _model()
    optimizer_step = _optimizer_step(model, schedule=schedule, epochs=epochs, learning_rate=0.1, optimizer="adam")
    rates = []
    for _ in range(epochs):
        for _ in range(4):
            rates.append(optimizer_step.learning_rate)
            _step(model, optimizer_step)
    return rates


def test_schedules_change_the_learning_rate() -> None:
    assert _rates("none", 3) == [0.1] * 12
    assert _rates("step", 7) == pytest.approx([0.1] * 12 + [0.01] * 12 + [0.001] * 4)
    expected = [0.05 * (1 + math.cos(math.pi * step / 12)) for step in range(12)]
    assert _rates("cosine", 3) == pytest.approx(expected)
    onecycle = _rates("onecycle", 25)
    assert max(onecycle) == pytest.approx(0.1, rel=1e-3)
    assert onecycle[0] == pytest.approx(0.1 / 25)
    assert onecycle.index(max(onecycle)) == pytest.approx(30, abs=1)
    assert onecycle[-1] < 1e-3


def _compute_rate_factors(epochs: int, **fields: Any) -> list[float]:
    """Return the learning rate at each step of a job with these `fields`, as a multiple of the job's learning rate.

    An epoch has 4 steps.
    """
    model = _model()
    optimizer_step = _optimizer_step(model, epochs=epochs, learning_rate=0.1, **fields)
    factors = []
    for _ in range(4 * epochs):
        factors.append(optimizer_step.learning_rate / 0.1)
        _step(model, optimizer_step)
    return factors


def test_learning_rate_warms_up_before_any_schedule() -> None:
    rising = [0.1 + 0.9 * step / 6 for step in range(6)]
    assert _compute_rate_factors(3, schedule="none", warmup_epochs=1.5, warmup_start=0.1) == pytest.approx(
        rising + [1] * 6
    )
    falling = [0.5 * (1 + math.cos(math.pi * step / 6)) for step in range(6)]
    assert _compute_rate_factors(3, schedule="cosine", warmup_steps=6, warmup_start=0.1) == pytest.approx(
        rising + falling
    )
    assert _compute_rate_factors(3, schedule="cosine", warmup_steps=6, warmup_epochs=0.5)[5:7] == pytest.approx(
        [0.835, 1]
    )


def test_schedules_end_at_the_final_rate() -> None:
    assert _compute_rate_factors(2, schedule="linear", final_rate=0.2) == pytest.approx(
        [1 - 0.1 * step for step in range(8)]
    )
    poly = [(1 - step / 8) ** 0.9 for step in range(8)]
    assert _compute_rate_factors(2, schedule="poly") == pytest.approx(poly)
    assert _compute_rate_factors(2, schedule="cosine", final_rate=0.5)[4] == pytest.approx(0.75)
    assert _compute_rate_factors(4, schedule="step", milestones=(1, 3)) == pytest.approx(
        [1] * 4 + [0.1] * 8 + [0.01] * 4
    )


GROUPS = {"0.weight": Group(0.5), "0.bias": Group(0.5, decays=False), "1.bias": Group(2.0, decays=False)}


@pytest.mark.parametrize("kernel", ["fused", "foreach", "for_loop"])
def test_groups_match_torch_exactly(kernel: str) -> None:
    actual, expected = _model(), _model()
    job = Job.from_fields(
        optimizer="adamw", learning_rate=0.01, weight_decay=0.1, schedule="none", optimizer_kernel=kernel
    )
    optimizer_step = OptimizerStep(list(actual.named_parameters()), job, 4, CPU, groups=GROUPS)
    named = dict(expected.named_parameters())
    plain = torch.optim.AdamW(
        [
            {"params": [named["0.weight"]], "lr": 0.005, "weight_decay": 0.1},
            {"params": [named["0.bias"]], "lr": 0.005, "weight_decay": 0.0},
            {"params": [named["1.weight"]], "lr": 0.01, "weight_decay": 0.1},
            {"params": [named["1.bias"]], "lr": 0.02, "weight_decay": 0.0},
        ],
        fused=kernel == "fused",
        foreach=kernel == "foreach",
    )
    for _ in range(3):
        _step(actual, optimizer_step)
        plain.zero_grad()
        expected(torch.ones(2, 5)).square().sum().backward()
        plain.step()
    assert all(map(torch.equal, actual.parameters(), expected.parameters()))
    assert optimizer_step.learning_rate == 0.01


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("sgd", {"momentum": 0.8, "nesterov": True}),
        ("adam", {"betas": (0.8, 0.95), "decoupled_weight_decay": False}),
        ("adamw", {"betas": (0.8, 0.95), "decoupled_weight_decay": True}),
        ("nadam", {"betas": (0.8, 0.95), "decoupled_weight_decay": True}),
        ("radam", {"betas": (0.8, 0.95), "decoupled_weight_decay": True}),
        ("rmsprop", {"momentum": 0.8, "alpha": 0.95}),
        ("adagrad", {"lr_decay": 0}),
        ("lamb", {"betas": (0.8, 0.95), "max_grad_norm": None}),
    ],
)
def test_optimizers_get_the_hyperparameters_of_the_job(optimizer: str, expected: dict[str, Any]) -> None:
    settings = {"momentum": 0.8, "beta2": 0.95, "nesterov": True, "weight_decay": 0.1, "learning_rate": 0.3}
    optimizer_step = _optimizer_step(_model(), optimizer=optimizer, schedule="none", **settings)
    (group,) = optimizer_step.optimizer.param_groups
    assert type(optimizer_step.optimizer).__name__.lower() == optimizer
    assert group.items() >= (expected | {"lr": 0.3, "weight_decay": 0.1}).items()


@pytest.mark.parametrize("schedule", ["cosine", "onecycle"])
@pytest.mark.parametrize("optimizer", FIELDS["optimizer"].choices)
def test_group_state_resumes_exactly(optimizer: str, schedule: str) -> None:
    job = Job.from_fields(optimizer=optimizer, schedule=schedule, epochs=3, learning_rate=0.01, ema_decay=0.9)

    def optimizer_step(model: nn.Module) -> OptimizerStep:
        return OptimizerStep(list(model.named_parameters()), job, 4, CPU, groups=GROUPS)

    first = _model()
    one = optimizer_step(first)
    before = copy.deepcopy(first.state_dict())
    for _ in range(3):
        _step(first, one)
    assert not any(map(torch.equal, before.values(), first.state_dict().values()))
    second = copy.deepcopy(first)
    two = optimizer_step(second)
    two.load_state_dict(one.state_dict())
    for _ in range(3):
        _step(first, one)
        _step(second, two)
    assert find_differences(one.state_dict(), two.state_dict()) == []
    assert all(map(torch.equal, first.parameters(), second.parameters()))


def test_loaded_state_takes_memory_format() -> None:
    """Check that loaded optimizer state gets the strides of its weights.

    Fused optimizers read both in memory order, so a step would otherwise give wrong weights.
    """

    def step(model: nn.Module, optimizer_step: OptimizerStep) -> None:
        optimizer_step.zero_grad()
        optimizer_step.backward(model(torch.linspace(-1, 1, 150).reshape(2, 3, 5, 5)).square().sum())
        optimizer_step.step()

    torch.manual_seed(0)
    first = nn.Conv2d(3, 4, 3)
    one = _optimizer_step(first)
    step(first, one)
    second = copy.deepcopy(first).to(memory_format=torch.channels_last)
    two = _optimizer_step(second)
    two.load_state_dict(one.state_dict())
    step(first, one)
    step(second, two)
    torch.testing.assert_close(second.weight, first.weight, rtol=1e-5, atol=1e-7)


def test_optimizer_step_without_parameters() -> None:
    optimizer_step = OptimizerStep([], Job.from_fields(schedule="onecycle"), 4, CPU)
    before = optimizer_step.learning_rate
    optimizer_step.zero_grad()
    optimizer_step.step()
    assert optimizer_step.learning_rate != before
    assert optimizer_step.state_dict()["state"] == {}


def test_schedule_can_be_set_to_any_step() -> None:
    for schedule in ("none", "step", "cosine", "onecycle"):
        stepped, placed = _model(), _model()
        fields = {"schedule": schedule, "epochs": 6, "learning_rate": 0.1, "optimizer": "adam"}
        one, two = _optimizer_step(stepped, **fields), _optimizer_step(placed, **fields)
        for _ in range(3):
            for _ in range(4):
                _step(stepped, one)
        two.set_schedule_step(12)
        groups = one.optimizer.param_groups[0], two.optimizer.param_groups[0]
        assert [group["lr"] for group in groups] == [groups[0]["lr"]] * 2
        assert groups[0]["betas"] == groups[1]["betas"]


def test_gradients_accumulate_until_the_step() -> None:
    complete, parts = _model(), _model()
    one, two = _optimizer_step(complete), _optimizer_step(parts)
    inputs = torch.randn(8, 5)
    one.zero_grad()
    one.backward(complete(inputs).square().sum() / 8)
    one.step()
    two.zero_grad()
    for chunk in inputs.chunk(4):
        two.backward(parts(chunk).square().sum() / 8)
    two.step()
    for actual, expected in zip(complete.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7)


def _train_with_clipping(limit: float) -> nn.Module:
    """Train three steps with clipped gradients in plain torch and return the model."""
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 5)).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
    return model


CLIPPED = {"schedule": "none", "weight_decay": 0.0}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("limit", [1e-3, 0.7, 1e3])
def test_clipping_matches_torch_exactly(limit: float, precision: str) -> None:
    model = _model()
    optimizer_step = _optimizer_step(model, clip_norm=limit, precision=precision, **CLIPPED)
    for _ in range(3):
        _step(model, optimizer_step)
    assert all(map(torch.equal, model.parameters(), _train_with_clipping(limit).parameters()))


def test_clipping_does_not_count_duplicates() -> None:
    limit, model = 0.5, _model()
    duplicates = ("1.weight", "1.bias")  # counted on another rank
    job = Job.from_fields(clip_norm=limit, **CLIPPED)
    optimizer_step = OptimizerStep(list(model.named_parameters()), job, 4, CPU, duplicates=duplicates)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer_step.step()
    for parameter in model.parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, torch.full_like(parameter, limit / math.sqrt(4 * 5 + 4)))


class RankSum:
    """Replacement for `sum_over_shards` that adds the values of ranks in several threads."""

    def __init__(self, ranks: int) -> None:
        self._values: list[Tensor] = [torch.zeros(())] * ranks
        self._barrier = threading.Barrier(ranks, timeout=120)

    def of(self, rank: int) -> Callable[[Tensor], Tensor]:
        def add(value: Tensor) -> Tensor:
            self._values[rank] = value
            self._barrier.wait()
            total = torch.stack(self._values).sum()
            self._barrier.wait()
            return total

        return add


def _on_ranks(work: Callable[[int, Callable[[Tensor], Tensor]], Any], ranks: int) -> list[Any]:
    adding = RankSum(ranks)
    with ThreadPoolExecutor(ranks) as pool:
        return [done.result() for done in [pool.submit(work, rank, adding.of(rank)) for rank in range(ranks)]]


def test_clipping_uses_norm_of_all_ranks() -> None:
    limit = 0.7
    model = _model()
    model(torch.ones(2, 5)).square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    reference = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    assert reference > limit
    expected = [parameter.grad.clone() for parameter in model.parameters()]

    def work(rank: int, sum_over_shards: Callable[[Tensor], Tensor]) -> list[Tensor]:
        shard = list(_model().named_parameters())[2 * rank : 2 * rank + 2]
        optimizer_step = OptimizerStep(shard, Job.from_fields(clip_norm=limit, **CLIPPED), 4, CPU, sum_over_shards)
        optimizer_step.zero_grad()
        for (_, parameter), gradient in zip(shard, gradients[2 * rank :], strict=False):
            parameter.grad = gradient.clone()
        optimizer_step.step()
        return [parameter.grad for _, parameter in shard if parameter.grad is not None]

    found = [gradient for gradients in _on_ranks(work, 3) for gradient in gradients]
    for actual, gradient in zip(found, expected, strict=True):
        torch.testing.assert_close(actual, gradient, rtol=1e-6, atol=0)


def test_scaler_skips_on_all_ranks_if_one_overflows() -> None:
    def work(rank: int, sum_over_shards: Callable[[Tensor], Tensor]) -> tuple[list[bool], list[float]]:
        model = _model()
        # The shard of the last rank is empty.
        shard = list(model.named_parameters())[2 * rank : 2 * rank + 2]
        optimizer_step = OptimizerStep(shard, Job.from_fields(precision="fp16", **CLIPPED), 4, CPU, sum_over_shards)
        moved, scales = [], []
        for step in range(4):
            before = [parameter.detach().clone() for _, parameter in shard]
            optimizer_step.zero_grad()
            for _, parameter in shard:
                overflows = step in (1, 2) and rank < step  # on one rank, then on two
                parameter.grad = optimizer_step.scale(torch.full_like(parameter, math.inf if overflows else 1.0))
            optimizer_step.step()
            after = [parameter.detach() for _, parameter in shard]
            moved.append(bool(shard) and not all(map(torch.equal, before, after)))
            scales.append(optimizer_step.state_dict()["scaler"]["scale"])
            if moved[-1] and step == 0:
                torch.testing.assert_close(before[0] - after[0], torch.full_like(before[0], 0.01))
        return moved, scales

    first, second, empty = _on_ranks(work, 3)
    assert first == second == ([True, False, False, True], [65536.0, 32768.0, 16384.0, 16384.0])
    assert empty == ([False] * 4, first[1])


@pytest.mark.parametrize("gradients", [(math.inf, 1.0), (1.0, math.inf)])
def test_scaler_finds_overflows_in_tensors_of_each_type(gradients: tuple[float, float]) -> None:
    parameters = [nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16)]
    optimizer_step = OptimizerStep([*zip("ab", parameters, strict=True)], Job.from_fields(precision="fp16"), 4, CPU)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = optimizer_step.scale(torch.full_like(parameter, gradient))
    optimizer_step.step()
    assert [parameter.tolist() for parameter in parameters] == [[1.0, 1.0]] * 2


def test_loss_scale_is_restored() -> None:
    model = _model()
    optimizer_step = _optimizer_step(model, precision="fp16")
    for overflows in (True, True, False):
        for parameter in model.parameters():
            parameter.grad = optimizer_step.scale(torch.full_like(parameter, math.inf if overflows else 1.0))
        optimizer_step.step()
    state = optimizer_step.state_dict()
    assert (state["scaler"]["scale"], state["scaler"]["_growth_tracker"]) == (16384.0, 1)
    again = _optimizer_step(model, precision="fp16")
    again.load_state_dict(copy.deepcopy(state))
    assert again.state_dict()["scaler"] == state["scaler"]
    assert float(again.scale(torch.ones(()))) == 16384.0


def test_loss_scale_and_schedule_start_anew_after_training_without_them() -> None:
    plain = _optimizer_step(_model(), schedule="none")
    _step(_model(), plain)
    state = plain.state_dict()
    assert (state["schedule"], state["scaler"]) == (None, {})
    scaled = _optimizer_step(_model(), precision="fp16", schedule="none")
    scaled.load_state_dict(state)
    assert (scaled.updates, float(scaled.scale(torch.ones(())))) == (1, 65536.0)


@pytest.mark.parametrize(("decay", "ramp"), [(0.9, 0), (0.999, 20)])
def test_averages_ramp_up_and_replace_weights_temporarily(decay: float, ramp: int) -> None:
    model = _model()
    optimizer_step = _optimizer_step(model, ema_decay=decay, ema_ramp=ramp)
    average = [parameter.detach().clone() for parameter in model.parameters()]
    for step in range(1, 6):
        _step(model, optimizer_step)
        keep = decay * (1 - math.exp(-step / ramp)) if ramp else decay
        average = [keep * old + (1 - keep) * new.detach() for old, new in zip(average, model.parameters(), strict=True)]
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    places = [parameter.data_ptr() for parameter in model.parameters()]
    with optimizer_step.use_averages():
        assert [parameter.data_ptr() for parameter in model.parameters()] == places
        for actual, expected in zip(model.parameters(), average, strict=True):
            torch.testing.assert_close(actual.detach(), expected, rtol=1e-5, atol=1e-7)
    assert all(map(torch.equal, model.parameters(), weights))
    with pytest.raises(KeyError), optimizer_step.use_averages():
        raise KeyError
    assert all(map(torch.equal, model.parameters(), weights))
    averages = optimizer_step.state_dict()["ema"]
    assert list(averages) == [name for name, _ in model.named_parameters()]
    for actual, expected in zip(averages.values(), average, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-7)


def test_averages_include_batchnorm_statistics() -> None:
    broadcast: list[float] = []

    def optimizer_step(model: nn.Module) -> OptimizerStep:
        buffers = [(name, buffer) for name, buffer in model.named_buffers() if buffer.is_floating_point()]
        return OptimizerStep(
            list(model.named_parameters()), Job.from_fields(ema_decay=0.5, ema_ramp=0), 4, CPU, buffers=buffers,
            broadcast_updates=lambda: broadcast.append(float(model.get_buffer("1.running_mean")[0])),
        )  # fmt: skip

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    one = optimizer_step(model)
    average = torch.zeros(4)
    for _ in range(3):
        one.zero_grad()
        one.backward(model(torch.randn(8, 5) + 3).square().sum())
        one.step()
        average = 0.5 * average + 0.5 * model.get_buffer("1.running_mean")
    raw = model.get_buffer("1.running_mean").clone()
    with one.use_averages():
        torch.testing.assert_close(model.get_buffer("1.running_mean"), average)
    assert torch.equal(model.get_buffer("1.running_mean"), raw)
    torch.testing.assert_close(one.state_dict()["ema"]["1.running_mean"], average)
    assert broadcast[2:] == pytest.approx([float(raw[0]), float(average[0]), float(raw[0])])
    two = optimizer_step(copy.deepcopy(model))
    two.load_state_dict(one.state_dict())
    assert find_differences(one.state_dict(), two.state_dict()) == []


def test_averages_resume_or_start_at_weights() -> None:
    first = _model()
    one = _optimizer_step(first, ema_decay=0.9)
    _step(first, one)
    second = copy.deepcopy(first)
    two = _optimizer_step(second, ema_decay=0.9)
    two.load_state_dict(one.state_dict())
    _step(first, one)
    _step(second, two)
    assert all(map(torch.equal, one.state_dict()["ema"].values(), two.state_dict()["ema"].values()))

    third = _model()
    three = _optimizer_step(third, ema_decay=0.9)
    third.load_state_dict(first.state_dict())
    three.load_state_dict(one.state_dict() | {"ema": {}})
    assert all(map(torch.equal, three.state_dict()["ema"].values(), first.parameters()))


def test_merge_states_gives_the_full_state() -> None:
    model = _model()
    optimizer_step = _optimizer_step(model, ema_decay=0.5)
    _step(model, optimizer_step)
    complete = optimizer_step.state_dict()
    parts = []
    for shard in (list(model.named_parameters())[:2], list(model.named_parameters())[2:]):
        restored = OptimizerStep(shard, Job.from_fields(ema_decay=0.5, ema_ramp=0), 4, CPU)
        restored.load_state_dict(complete)
        parts.append(restored.state_dict())
    again = merge_states(parts)
    assert list(again["state"]) == list(complete["state"])
    for name, state in complete["state"].items():
        assert torch.equal(again["state"][name]["momentum_buffer"], state["momentum_buffer"])
        assert torch.equal(again["ema"][name], complete["ema"][name])
    assert again["schedule"] == complete["schedule"] == 1


SKIPPING: dict[str, Any] = {"on_not_finite": "skip", "optimizer": "adamw", "learning_rate": 0.01, "ema_decay": 0.5}


@pytest.mark.parametrize(
    ("loss", "gradient", "skipped"),
    [
        (0.5, 1.0, False),
        (math.nan, 1.0, True),
        (math.inf, 1.0, True),
        (None, math.nan, True),
        (0.5, -math.inf, True),
        (None, 1.0, False),
    ],
)
def test_skipped_step_moves_only_the_schedule(loss: float | None, gradient: float, skipped: bool) -> None:
    model = _model()
    optimizer_step = _optimizer_step(model, **SKIPPING)
    _step(model, optimizer_step)
    before, rate = copy.deepcopy((model.state_dict(), optimizer_step.state_dict())), optimizer_step.learning_rate
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1.0)
    next(model.parameters()).grad[0, 0] = gradient  # type: ignore[index]
    optimizer_step.step(None if loss is None else torch.tensor(loss))
    assert optimizer_step.skipped == skipped
    assert optimizer_step.updates == 2 - skipped
    assert optimizer_step.learning_rate < rate
    after = (model.state_dict(), optimizer_step.state_dict())
    assert before[1].pop("schedule") + 1 == after[1].pop("schedule")
    assert (not find_differences(before, after)) == skipped
    named, job = list(model.named_parameters()), Job.from_fields(**SKIPPING)
    other_rank_failed = OptimizerStep(named, job, 4, CPU, all_reduce_max=lambda _: [1])
    other_rank_failed.step(torch.tensor(0.5))
    assert other_rank_failed.skipped


@pytest.mark.parametrize(("loss", "gradient"), [(math.nan, math.nan), (0.5, math.inf)])
def test_scaler_ignores_nonfinite_loss(loss: float, gradient: float) -> None:
    model = _model()
    optimizer_step = _optimizer_step(model, precision="fp16", **SKIPPING)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, gradient)
    optimizer_step.step(torch.tensor(loss))
    assert all(map(torch.equal, before, model.parameters()))
    assert optimizer_step.skipped == math.isnan(loss)
    assert optimizer_step.state_dict()["scaler"]["scale"] == (65536.0 if optimizer_step.skipped else 32768.0)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_frozen_parameters_do_not_move_until_released(optimizer: str) -> None:
    model, initial = _model(), _model()
    fields = {"optimizer": optimizer, "weight_decay": 0.1, "schedule": "none", "freeze_epochs": 1}
    optimizer_step = OptimizerStep(
        list(model.named_parameters()), Job.from_fields(**fields), 4, CPU, frozen={"0.weight", "0.bias"}
    )
    for _ in range(3):
        _step(model, optimizer_step)
    assert not find_differences(model[0].state_dict(), initial[0].state_dict())
    assert find_differences(model[1].state_dict(), initial[1].state_dict())
    plain = copy.deepcopy(model)
    fresh = _optimizer_step(plain, **fields)
    optimizer_step.unfreeze()
    _step(plain, fresh)
    _step(model, optimizer_step)
    assert not find_differences(model[0].state_dict(), plain[0].state_dict())
    assert find_differences(model[0].state_dict(), initial[0].state_dict())


_OTHERWISE = {
    "momentum": 0.0, "beta2": 0.9, "nesterov": True, "optimizer_kernel": "for_loop", "milestones": (1,), "final_rate": 0.5,
    "warmup_epochs": 1.0, "warmup_steps": 2, "warmup_start": 0.5,
}  # fmt: skip


def _all_that_it_does(**fields: Any) -> tuple[Any, list[float]]:
    optimizer_step = _optimizer_step(_model(), epochs=3, **fields)
    settings = [
        {name: value for name, value in group.items() if name != "params"}
        for group in optimizer_step.optimizer.param_groups
    ]
    return settings, _compute_rate_factors(3, **fields)


@pytest.mark.parametrize("optimizer", FIELDS["optimizer"].choices)
@pytest.mark.parametrize("schedule", ["step", "cosine", "onecycle"])
def test_idle_fields_are_reported(optimizer: str, schedule: str) -> None:
    chosen = {"optimizer": optimizer, "schedule": schedule}
    plain = _all_that_it_does(**chosen)
    idle = find_idle_by_needs(chosen)
    for name, value in _OTHERWISE.items():
        assert (_all_that_it_does(**chosen, **{name: value}) == plain) == (name in idle), name
