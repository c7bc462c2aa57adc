"""Automatic choices at the start of a run, for networks that are slow in one configuration."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine.contract.events import Chosen, Failed, Validation
from engine.contract.job import Job
from engine.contract.protocol import Pause
from engine.contract.worker import WorkerDone
from engine.strategies import STRATEGIES
from engine.strategies.base import ResolvedJob, Strategy, StrategyError, resolve_precision
from engine.torch_compat import is_compiled
from engine.training.autotune import Autotuner
from tests.support.dataset_infos import make_classification_objective
from tests.support.gates import ON_COMMAND
from tests.support.specs import make_worker_spec
from tests.support.worker_group import WorkerGroup

SHAPE = (3, 16, 16)
LONG = 1000
"""Number of steps of a run that is long enough for trials."""


def _waste_time() -> None:
    """Keep the CPU busy for much longer than a small network needs."""
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        pass


class SlowWhen(nn.Module):
    """Network that wastes time on inputs for which `slow` returns True. `calls` is the number of its forward passes."""

    def __init__(self, slow: Callable[[Tensor], bool]) -> None:
        super().__init__()
        layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(784, 5)
        self.body = nn.Sequential(*layers)
        self.slow = slow
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.slow(x):
            _waste_time()
        logits: Tensor = self.body(x)
        return logits


def _lies_channels_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


class AutotuneResult:
    """Choices of an `Autotuner` for `model` on the CPU. `choices` maps a job field to the choice and its reason."""

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int = LONG,
        before: dict[str, Any] | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
        rank: int = 0,
        shape: tuple[int, ...] = SHAPE,
        **job: Any,
    ) -> None:
        self.choices: dict[str, tuple[str, str]] = {}
        fields: dict[str, Any] = {"batch_size": 4, "devices": ("cpu",)} | job
        spec = make_worker_spec(Job.from_fields(**fields), rank=rank, world_size=1, devices=("cpu",) * (rank + 1))
        self.strategy: Strategy = STRATEGIES[spec.job.resolved_strategy](spec)
        self.trials = Autotuner(
            self.strategy, make_classification_objective(), shape, steps=steps, emit=self._emit, is_stopped=is_stopped
        )
        self.trials.decide(spec.job, model.train(), before or {})

    def _emit(self, event: Chosen) -> None:
        self.choices[event.field] = (event.choice, event.why)

    @property
    def job(self) -> Job:
        return self.trials.job


@pytest.mark.parametrize("chosen", ["contiguous", "channels_last"])
def test_autotune_chooses_the_faster_memory_format(chosen: str) -> None:
    model = SlowWhen(lambda x: _lies_channels_last(x) != (chosen == "channels_last"))
    decided = AutotuneResult(model)
    assert decided.job.precision.memory_format == chosen
    choice, why = decided.choices["memory_format"]
    assert choice == chosen
    assert "in a trial a pass took" in why
    assert "with contiguous and" in why
    weight = next(model.parameters())
    assert _lies_channels_last(weight) == (chosen == "channels_last")


@pytest.mark.parametrize(
    ("passes", "reason"),
    [
        # The warm-up doesn't count, and the medians do. All passes are made, since no format is clearly faster.
        (((0.9, 0.9), (0.3, 0.4), *[(0.5, 0.4)] * 3, (0.5, 1.0), *[(0.9, 1.0)] * 2), "took 500.0 ms with contiguous and 400.0 ms"),
        (((0.1, 0.9), (0.8, 0.2)), "took 800.0 ms with contiguous and 200.0 ms"),  # clearly faster after the warm-up
    ],
)  # fmt: skip
def test_autotune_compares_medians_after_the_warm_up(
    monkeypatch: pytest.MonkeyPatch, passes: tuple[tuple[float, float], ...], reason: str
) -> None:
    seconds = iter([each for pair in passes for each in pair])
    monkeypatch.setattr("engine.training.autotune.Rehearsal.time_pass", lambda _: next(seconds))
    monkeypatch.setattr("engine.training.autotune.ENOUGH_S", 1000.0)
    choice, why = AutotuneResult(SlowWhen(lambda _: False), steps=150).choices["memory_format"]
    assert choice == "channels_last"
    assert reason in why
    assert next(seconds, None) is None


def test_autotune_keeps_samples_that_are_no_images_contiguous() -> None:
    decided = AutotuneResult(SlowWhen(lambda _: False), shape=(3, 64), memory_format="channels_last")
    why = "only images can have their channels last, and these samples are not images"
    assert decided.choices["memory_format"] == ("contiguous", why)


def test_autotune_has_no_side_effects() -> None:
    model = SlowWhen(lambda _: False)
    before = copy.deepcopy(model.state_dict())
    random = torch.get_rng_state()
    AutotuneResult(model)
    assert model.calls > 0
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(module.training for module in model.modules())


def test_autotune_keeps_contiguous_if_channels_last_fails() -> None:
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.head = nn.Linear(4 * 14 * 14, 5)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.conv(x).view(len(x), -1))
            return logits

    model = Viewing()
    decided = AutotuneResult(model)
    choice, why = decided.choices["memory_format"]
    assert choice == decided.job.precision.memory_format == "contiguous"
    assert why.startswith("a trial of the alternative failed (RuntimeError: view size is not compatible")
    assert model.conv.weight.is_contiguous()


def test_autotune_skips_trials_of_short_runs() -> None:
    model = SlowWhen(lambda _: False)
    decided = AutotuneResult(model, steps=149)
    assert model.calls == 0
    assert {field: choice for field, (choice, _) in decided.choices.items()} == {
        "precision": "fp32", "memory_format": "contiguous"
    }  # fmt: skip
    assert "a run of 149 steps is too short" in decided.choices["memory_format"][1]
    other = AutotuneResult(model, memory_format="contiguous", rank=1)
    assert (other.job, other.choices) == (decided.job, {}), "only rank 0 reports"


def test_autotune_keeps_explicit_settings() -> None:
    model = SlowWhen(lambda _: True)
    decided = AutotuneResult(model, memory_format="channels_last", precision="bf16", compile="off")
    assert model.calls == 0
    assert decided.choices == {}
    fields = ("memory_format", "precision", "compile")
    assert [decided.job.value(name) for name in fields] == ["channels_last", "bf16", "off"]


def test_autotune_skips_models_without_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = AutotuneResult(nn.Sequential(nn.Flatten(), nn.Linear(768, 5)))
    assert decided.choices["memory_format"] == ("contiguous", "the model has no convolutions that would benefit")
    assert decided.choices["precision"] == ("fp32", "bf16 is chosen only on GPUs that support it natively")
    monkeypatch.setattr("engine.training.autotune.find_device_without_bf16", lambda _: "")
    decided = AutotuneResult(nn.Sequential(nn.Flatten(), nn.Linear(768, 5)))
    assert decided.choices["precision"] == ("bf16", "the GPUs support bf16 natively, and it needs no loss scaling")
    collectives = type(decided.strategy.collectives)
    monkeypatch.setattr(collectives, "all_gather_objects", lambda _self, name: [name, "NVIDIA T4"])  # of another rank
    assert AutotuneResult(nn.Sequential(nn.Flatten(), nn.Linear(768, 5))).choices["precision"][0] == "fp32"


@pytest.mark.parametrize("strategy", ["fsdp", "pipeline"])
def test_autotune_keeps_divided_models_contiguous(strategy: str) -> None:
    model = SlowWhen(lambda _: False)
    decided = AutotuneResult(model, strategy=strategy, devices=("cpu", "cpu"))
    assert model.calls == 0
    assert set(decided.choices) == {"precision"}
    assert (decided.job.precision.memory_format, decided.job.precision.compile) == ("contiguous", "off")


def test_autotune_restores_choices_when_resuming() -> None:
    before = AutotuneResult(SlowWhen(lambda x: not _lies_channels_last(x)))
    model = SlowWhen(_lies_channels_last)
    decided = AutotuneResult(model, before=msgspec.to_builtins(before.job.values()))
    assert model.calls == 0
    assert decided.job == before.job
    assert decided.choices["memory_format"] == ("channels_last", "the resumed run used it")
    assert "compile" not in decided.choices


@pytest.mark.parametrize("choice", ["on", "off"])
def test_autotune_restores_compile_unless_requested(choice: str) -> None:
    before = AutotuneResult(nn.Sequential(nn.Flatten(), nn.Linear(768, 5))).job
    fields = msgspec.to_builtins(before.values()) | {"compile": choice}
    decided = AutotuneResult(nn.Sequential(nn.Flatten(), nn.Linear(768, 5)), before=fields)
    assert decided.job.precision.compile == choice
    assert decided.choices["compile"] == (choice, "the resumed run used this setting")
    other = AutotuneResult(nn.Sequential(nn.Flatten(), nn.Linear(768, 5)), before=fields, compile="on")
    assert (other.job.precision.compile, "compile" in other.choices) == ("on", False)


@pytest.mark.parametrize("changed", [{"batch_size": 8}, {"devices": ("GPU-1",)}])
def test_autotune_ignores_choices_for_other_batches_and_devices(changed: dict[str, Any]) -> None:
    fields = {"batch_size": 4, "devices": ("cpu",), "memory_format": "channels_last", "precision": "fp32"} | changed
    before = msgspec.to_builtins(Job.from_fields(**fields).values())
    assert AutotuneResult(SlowWhen(_lies_channels_last), before=before).job.precision.memory_format == "contiguous"


@pytest.mark.parametrize(("split_points", "expected"), [((), ("a",)), (("b",), ("b",))])
def test_autotune_restores_split_points_unless_the_job_has_its_own(
    split_points: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    fields = {"strategy": "pipeline", "devices": ("cpu", "cpu"), "batch_size": 4}
    before = msgspec.to_builtins(
        AutotuneResult(nn.Linear(1, 1), **fields).job.with_fields(split_points=("a",)).values()
    )
    assert (
        AutotuneResult(nn.Linear(1, 1), before=before, split_points=split_points, **fields).job.parallel.split_points
        == expected
    )


@pytest.mark.parametrize(
    ("capabilities", "precision"), [([(9, 0)], "bf16"), ([(8, 0), (8, 6)], "bf16"), ([(8, 0), (7, 5)], "fp32")]
)
def test_precision_is_bf16_if_all_gpus_support_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: list[tuple[int, int]], precision: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capabilities[index])
    devices = tuple(f"GPU-{number}" for number in range(len(capabilities)))
    assert resolve_precision(Job.from_fields(devices=devices)) == precision
    assert resolve_precision(Job.from_fields(devices=devices, precision="fp32")) == "fp32"
    assert resolve_precision(Job.from_fields(devices=("cpu",))) == "fp32"
    assert resolve_precision(Job.from_fields(devices=("GPU-0", "cpu"))) == "fp32"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert resolve_precision(Job.from_fields(devices=("one:GPU-0", "two:GPU-1"))) == "bf16", "only a local GPU counts"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "on the CPU"),
        ({"freeze_epochs": 1}, "it would have to be recompiled when the backbone is unfrozen"),
        ({"multi_scale": 0.5}, "it would have to be recompiled for every image size"),
    ],
)
def test_autotune_compiles_on_cpu_only_if_requested(fields: dict[str, Any], why: str) -> None:
    model = SlowWhen(lambda _: False)
    decided = AutotuneResult(model, memory_format="contiguous", **fields)
    decided.strategy.wrap(model, make_classification_objective(), SHAPE, ResolvedJob(decided.job))
    decided.trials.compile()
    assert decided.job.precision.compile == decided.strategy.job.precision.compile == "off"
    assert decided.choices["compile"][1].startswith(why)


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ("activation_checkpointing", "activation checkpointing recomputes blocks"),
        ("static_graph", "DDP's static graph can't be combined"),
        ("sync_batchnorm", "SyncBatchNorm layers communicate"),
    ],
)
def test_autotune_explains_why_it_does_not_compile_on_a_gpu(field: str, why: str) -> None:
    model = SlowWhen(lambda _: False)
    decided = AutotuneResult(model, memory_format="contiguous", **{field: True})
    strategy = decided.strategy
    strategy.model, strategy.resolved_job, strategy.device = model, ResolvedJob(decided.job), torch.device("cuda")
    decided.trials.compile()
    assert decided.choices["compile"][0] == "off"
    assert decided.choices["compile"][1].startswith(why)


BOTH = ("default", "reduce-overhead")


@pytest.mark.parametrize(
    ("fields", "seconds", "modes", "reason"),
    [
        ({}, (0.01,), (), "too short to repay"),
        ({"accumulation": 4}, (0.05, 0.02), ("default",), "took 50.0 ms with off and 20.0 ms with on"),
        ({}, (2.0, 1.5, 0.5), BOTH, "took 2.0 s with off and 500.0 ms with on (with CUDA graphs)"),
        ({}, (300.0, 200.0, 250.0), (*BOTH, "default"), "took 5 min with off and 3 min with on"),
        ({}, (2.0, 1.98, 1.99), BOTH, "too small a difference"),
        ({}, (2.0, 2.2, 2.1), BOTH, "took 2.0 s with off and 2.1 s with on"),
        ({}, (2.0, 1.0, None), (*BOTH, "default"), "took 2.0 s with off and 1.0 s with on"),
        ({}, (2.0, None, None), BOTH, "failed"),
        ({}, (None,), (), "failed"),
    ],
)
def test_autotune_compiles_if_the_best_mode_pays_off(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], seconds: tuple[float, ...], modes: object, reason: str
) -> None:
    """Simulate a GPU on which a pass takes `seconds`: first without compiling, then in each of the modes."""
    compiled: list[str] = []

    def compile_model(model: nn.Module, mode: str) -> None:
        compiled.append(mode)
        _compile(model, mode)

    timed, warm_ups = iter([*seconds, 0.0]), list[int]()

    def measure(*_: object, warm_up: int) -> list[float]:
        warm_ups.append(warm_up)
        each = next(timed)
        return [each] if each is not None else []

    monkeypatch.setattr(Autotuner, "_explain_skipping_compiling", lambda _: "")
    monkeypatch.setattr(Autotuner, "_measure_candidates", measure)
    monkeypatch.setattr(nn.Module, "compile", compile_model)
    model = SlowWhen(lambda _: False)
    decided = AutotuneResult(model, memory_format="contiguous", **fields)
    decided.strategy.wrap(model, make_classification_objective(), SHAPE, ResolvedJob(decided.job))
    try:
        decided.trials.compile()
    finally:
        torch.compiler.set_stance("default")
    choice, why = decided.choices["compile"]
    assert choice == decided.job.precision.compile == ("on" if is_compiled(model) else "off")
    assert tuple(compiled) == modes
    assert warm_ups == [1] + [2] * len(compiled)
    assert reason in why
    assert why.endswith(reason) or not reason.startswith("took")


@pytest.mark.parametrize("pass_s", [[0.1], []], ids=["success", "failure"])
def test_autotune_compiles_on_request_or_fails(monkeypatch: pytest.MonkeyPatch, pass_s: list[float]) -> None:
    stances: list[str] = []
    monkeypatch.setattr(torch.compiler, "set_stance", stances.append)
    monkeypatch.setattr(Autotuner, "_measure_candidates", lambda *_, **__: pass_s)
    monkeypatch.setattr(nn.Module, "compile", _compile)
    model = SlowWhen(lambda _: False)
    decided = AutotuneResult(model, memory_format="contiguous", precision="fp32", compile="on")
    decided.strategy.wrap(model, make_classification_objective(), SHAPE, ResolvedJob(decided.job))
    with (
        nullcontext()
        if pass_s
        else pytest.raises(StrategyError, match=r"can't be compiled: it failed on another rank\.")
    ):
        decided.trials.compile()
    assert is_compiled(model)
    assert decided.choices == {}
    assert stances == ["eager_on_recompile"] * len(pass_s)


SLOW_ON_RANK_1 = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4 * 14 * 14, num_classes)

    def forward(self, x):
        last = not x.is_contiguous()
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        if last == (rank == 1):
            sum(range(3_000_000 if rank else 300_000))
        return self.head(self.conv(x).flatten(1))

def build_model(num_classes):
    return Net(num_classes)
"""


@pytest.mark.long
def test_autotune_agrees_among_ranks(
    job: Callable[..., Job], start: Callable[..., WorkerGroup], model_file: Callable[[str], dict[str, str]]
) -> None:
    """Make the memory format channels_last slightly faster on rank 0 and much slower on rank 1."""
    fields = {**model_file(SLOW_ON_RANK_1), "batch_size": 2, "epochs": 5, "memory_format": "auto"}
    group = start(job(cpus=2, strategy="ddp", **fields)).completed()
    (chosen,) = (event for event in group.of(Chosen) if event.field == "memory_format")
    assert chosen.choice == "contiguous"
    last = group.checkpoint()
    assert last["job"]["memory_format"] == "contiguous"


GATED_PASSES = """
import time
from pathlib import Path

from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4 * 14 * 14, num_classes)

    def forward(self, x):
        with Path(__file__).with_name("passes").open("a") as file:
            file.write("pass\\n")
        while not Path(__file__).with_name("gate").exists():
            time.sleep(0.01)
        return self.head(self.conv(x).flatten(1))

def build_model(num_classes):
    return Net(num_classes)
"""


@pytest.mark.parametrize("cpus", [1, pytest.param(2, marks=pytest.mark.long)])
def test_pause_ends_trial_of_memory_formats(
    job: Callable[..., Job],
    start: Callable[..., WorkerGroup],
    model_file: Callable[[str], dict[str, str]],
    cpus: int,
) -> None:
    file = model_file(GATED_PASSES)
    passes = Path(file["model"]).with_name("passes")
    given = job(cpus=cpus, strategy="single" if cpus == 1 else "ddp", epochs=1000, memory_format="auto", **file)
    group = start(given, prepare=ON_COMMAND)
    group.read(lambda _, _message: passes.exists())  # heartbeats are messages, too
    group.send(Pause(), rank=cpus - 1)
    assert group.finish() == [0] * cpus
    assert len(passes.read_text().splitlines()) <= 5 * cpus
    assert [done.stopped for done in group.of(WorkerDone)] == [True] * cpus
    assert group.checkpoint()["job"]["memory_format"] == "auto"


def _compile(model: nn.Module, mode: str) -> None:
    """Mark `model` as compiled, without the delay of compiling it."""
    model._compiled_call_impl = model._call_impl


@pytest.mark.parametrize("stop", ["before compiling", "after compiling"])
def test_stop_ends_trial_of_compiling(monkeypatch: pytest.MonkeyPatch, stop: str) -> None:
    """Let the autotuner decide as for a GPU, although the model runs on the CPU."""
    monkeypatch.setattr(Autotuner, "_explain_skipping_compiling", lambda _: "")
    monkeypatch.setattr("engine.training.autotune.COMPILING_S", 0.0)
    monkeypatch.setattr(nn.Module, "compile", _compile)
    model = SlowWhen(lambda _: False)
    passes_when_compiled: list[int] = []

    def is_stopped() -> bool:
        if is_compiled(model):
            passes_when_compiled.append(model.calls)
        return is_compiled(model) if stop == "after compiling" else model.calls >= 2

    decided = AutotuneResult(model, memory_format="contiguous", compile="auto", is_stopped=is_stopped)
    decided.strategy.wrap(model, make_classification_objective(), SHAPE, ResolvedJob(decided.job))
    decided.trials.compile()
    assert not is_compiled(model)
    assert decided.strategy.job.precision.compile == "auto"
    assert "compile" not in decided.choices
    assert set(passes_when_compiled) == ({model.calls} if stop == "after compiling" else set())
    assert model.calls == 2 or stop == "after compiling"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"memory_format": "channels_last"}, {"memory_format": "contiguous"}),
        pytest.param({"memory_format": "contiguous"}, {"memory_format": "channels_last"}, marks=pytest.mark.long),
        pytest.param({"memory_format": "channels_last"}, {"strategy": "fsdp", "cpus": 2}, marks=pytest.mark.long),
        pytest.param(
            {"memory_format": "contiguous"},
            {"strategy": "ddp", "cpus": 2, "memory_format": "channels_last"},
            marks=pytest.mark.long,
        ),
    ],
    ids=["to-contiguous", "to-channels-last", "to-fsdp", "to-ddp"],
)
def test_resume_changes_memory_format(
    job: Callable[..., Job], start: Callable[..., WorkerGroup], before: dict[str, Any], after: dict[str, Any]
) -> None:
    fields = {"epochs": 4, "schedule": "none", "ema_decay": 0.9}
    uninterrupted = start(job(**fields), every_step=True).completed()
    first = start(job(**fields | before | {"epochs": 2}), every_step=True).completed()
    last = first.folder / "checkpoints" / "last.pt"
    second = start(job(**fields | after, resume_from=str(last)), every_step=True).completed()
    np.testing.assert_allclose(first.losses + second.losses, uninterrupted.losses, rtol=1e-4)
    measured = [event.measures["loss"] for event in uninterrupted.of(Validation)]
    np.testing.assert_allclose([event.measures["loss"] for event in second.of(Validation)], measured[2:], rtol=1e-4)


COMPILED = """
from pathlib import Path

import torch
from torch import nn

@torch.compiler.disable
def note():
    with Path(__file__).with_name("notes").open("a") as file:
        file.write("eager\\n")

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 14 * 14, num_classes)

    def forward(self, x):
        if not torch.compiler.is_compiling():
            note()
        return self.head(self.norm(self.conv(x)).relu().flatten(1))

def build_model(num_classes):
    return Net(num_classes)
"""


WITHOUT_COMPILER = """
import torch._inductor.config
from torch import nn

torch._inductor.config.cpp.cxx = ("no-such-compiler",)

def build_model(num_classes):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(784, num_classes))
"""


@pytest.mark.long
def test_autotune_reports_failed_compile(
    job: Callable[..., Job], start: Callable[..., WorkerGroup], model_file: Callable[[str], dict[str, str]]
) -> None:
    group = start(job(**model_file(WITHOUT_COMPILER), compile="on"))
    assert group.finish(120) == [1]
    (failed,) = group.of(Failed)
    assert "The model can't be compiled: " in failed.cause
    assert failed.cause.endswith("Set Compile the model to off.")


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), ("ddp", 2)])
def test_compile_keeps_training_and_skips_validation(
    job: Callable[..., Job],
    start: Callable[..., WorkerGroup],
    model_file: Callable[[str], dict[str, str]],
    strategy: str,
    cpus: int,
) -> None:
    file = model_file(COMPILED)
    notes = Path(file["model"]).with_name("notes")
    # The batch can't be divided equally between two ranks.
    fields: dict[str, Any] = {**file, "epochs": 2, "strategy": strategy, "cpus": cpus, "batch_size": 13}
    eager = start(job(**fields), every_step=True).completed()
    notes_of_eager = len(notes.read_text().splitlines())
    notes.unlink()
    compiled = start(job(**fields, compile="on"), every_step=True)
    assert not any(compiled.finish(300)), compiled.of(Failed)
    np.testing.assert_allclose(compiled.losses, eager.losses, rtol=1e-4)
    steps = 5 * 2 * cpus
    assert len(notes.read_text().splitlines()) == notes_of_eager - steps


@pytest.mark.long
def test_compile_lasts_until_unfreezing(
    job: Callable[..., Job], start: Callable[..., WorkerGroup], model_file: Callable[[str], dict[str, str]]
) -> None:
    file = model_file(COMPILED)
    notes = Path(file["model"]).with_name("notes")
    fields: dict[str, Any] = {**file, "epochs": 2, "freeze_epochs": 1}
    eager = start(job(**fields), every_step=True).completed()
    notes_of_eager = len(notes.read_text().splitlines())
    notes.unlink()
    compiled = start(job(**fields, compile="on"), every_step=True).completed(300)
    np.testing.assert_allclose(compiled.losses, eager.losses, rtol=1e-4)
    assert len(notes.read_text().splitlines()) == notes_of_eager - len(eager.losses) // 2
    (chosen,) = (event for event in compiled.of(Chosen) if event.field == "compile")
    assert chosen.choice == "off"
    assert chosen.why.startswith("it was compiled for the frozen model")


class SlowIfCompiledOrNot(nn.Module):
    """Network that is slow only when it is compiled, or only when it isn't if `compiled` is False."""

    def __init__(self, *, compiled: bool) -> None:
        super().__init__()
        self.slow_compiled = compiled
        self.head = nn.Linear(768, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if torch.compiler.is_compiling() == self.slow_compiled:
            for _ in range(30):
                x = x + (torch.ones(768, 768) @ torch.zeros(768, 768))[:1]
        logits: Tensor = self.head(x)
        return logits


@pytest.mark.long
@pytest.mark.parametrize("choice", ["on", "off"])
def test_autotune_keeps_compile_only_if_faster(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, choice: str
) -> None:
    """Let the autotuner decide as for a GPU, although the model runs on the CPU."""
    monkeypatch.setattr(Autotuner, "_explain_skipping_compiling", lambda _: "")
    monkeypatch.setattr("engine.training.autotune.COMPILING_S", 0.0)
    # Torch's progress bar would leave a thread running.
    monkeypatch.setattr("torch.hub.tqdm.monitor_interval", 0, raising=False)
    model = SlowIfCompiledOrNot(compiled=choice == "off")
    decided = AutotuneResult(model, memory_format="contiguous")
    decided.strategy.wrap(model, make_classification_objective(), SHAPE, ResolvedJob(decided.job))
    try:
        decided.trials.compile()
        assert decided.job.precision.compile == choice
        assert (model._compiled_call_impl is not None) == (choice == "on")
    finally:
        torch.compiler.set_stance("default")
        torch._dynamo.reset()
        caplog.clear()  # torch warns without CUDA
