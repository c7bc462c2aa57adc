"""Steps that are skipped because memory is insufficient, and the number of skipped steps at which training fails."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from engine.contract.events import Chosen, Event, Warned
from engine.contract.job import Job
from engine.data.loading.base_loader import Batch
from engine.models.model_surgery import freeze_norms
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import ResolvedJob, StepResult
from engine.strategies.single import SingleDevice
from engine.torch_compat import is_compiled
from engine.training.metric_buffer import NotFinite
from engine.training.oom_retry import SKIPS, ResilientStep
from tests.support.dataset_infos import make_classification_objective
from tests.support.specs import make_worker_spec


def make_stepper(
    job: Job, *layers: nn.Module, strategy_class: type[SingleDevice] = SingleDevice
) -> tuple[ResilientStep, list[Event], nn.Module]:
    """Return an object that performs training steps, the list of the events that it emits, and the model.

    The model consists of `layers`, followed by a linear layer.
    """
    strategy = strategy_class(make_worker_spec(job))
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(12, 2))
    strategy.wrap(model, make_classification_objective(), (3, 2, 2), ResolvedJob(job))
    events: list[Event] = []
    optimizer_step = OptimizerStep(strategy.parameters(), job, 100, strategy.device)
    return ResilientStep(strategy, optimizer_step, events.append, lambda: False), events, model


def batch_of(value: float, images: int = 4) -> Batch:
    return Batch(torch.full((images, 3, 2, 2), value), torch.zeros(images, dtype=torch.int64), images, 0.0)


def test_step_raises_after_too_many_skips_in_a_row() -> None:
    stepper, events, model = make_stepper(Job.from_fields(on_not_finite="skip", batch_size=4), nn.BatchNorm2d(3))
    good, bad = batch_of(1.0), batch_of(float("nan"))
    batches = [*[bad] * SKIPS, good, *[bad] * SKIPS]
    results = [stepper.step(batch, number) for number, batch in enumerate(batches, 1)]
    assert [result is None for result in results] == [batch is bad for batch in batches]
    assert len(events) == 2 * SKIPS
    assert int(model.get_buffer("0.num_batches_tracked")) == 1
    with pytest.raises(NotFinite, match=f"After {SKIPS} skipped steps in a row") as raised:
        stepper.step(bad, len(batches) + 1)
    assert raised.value.step == len(batches) + 1
    assert "No checkpoint has been saved yet." in str(raised.value)
    numbers = [re.findall(r"step (\d+):", event.message) for event in events if isinstance(event, Warned)]
    assert numbers == [[str(number)] for number, batch in enumerate(batches, 1) if batch is bad]


def test_step_repeats_its_random_numbers_in_smaller_parts() -> None:
    drawn: list[float] = []

    class OutOfMemoryOnce(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            drawn.append(torch.rand(()).item())
            if len(drawn) == 1:
                raise torch.OutOfMemoryError("full")
            return images

    stepper, events, model = make_stepper(Job.from_fields(batch_size=5), OutOfMemoryOnce())
    model._compiled_call_impl = model._call_impl  # as if it were compiled
    assert stepper.step(batch_of(1.0, images=5), 1234) is not None
    assert len(drawn) == 3
    assert drawn[0] == drawn[1] != drawn[2]
    chosen, warning = events
    assert (isinstance(chosen, Chosen), is_compiled(model)) == (True, False)
    assert isinstance(warning, Warned)
    assert warning.code == "out_of_memory"
    assert re.findall(r"[\d,]+", warning.message)[:4] == ["1,234", "2", "3", ","], "step, parts and images"


def test_compiling_is_stopped_once() -> None:
    stepper, events, model = make_stepper(Job.from_fields(batch_size=4))
    stepper.stop_compiling("of this")
    assert events == []
    model._compiled_call_impl = model._call_impl  # as if it were compiled
    for _ in range(2):
        stepper.stop_compiling("of this")
        assert not is_compiled(model)
    assert events == [Chosen(field="compile", choice="off", why="of this")]


def test_step_that_has_updated_the_weights_is_not_repeated() -> None:
    class RunsOutAfterwards(SingleDevice):
        def step(self, batch: Batch | None, optimizer_step: OptimizerStep) -> StepResult:
            super().step(batch, optimizer_step)
            raise torch.OutOfMemoryError("full")

    stepper, events, model = make_stepper(Job.from_fields(batch_size=4), strategy_class=RunsOutAfterwards)
    before = model.get_parameter("1.weight").clone()
    with pytest.raises(torch.OutOfMemoryError):
        stepper.step(batch_of(1.0), 1)
    assert not torch.equal(model.get_parameter("1.weight"), before)
    assert events == []


@pytest.mark.parametrize("is_frozen", [False, True])
def test_step_that_ran_out_of_memory_equals_one_in_smaller_parts(is_frozen: bool) -> None:
    class OutOfMemory(nn.Module):
        left = 0

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            self.left -= 1
            if self.left == 0:
                raise torch.OutOfMemoryError("full")
            return images

    states, messages = [], []
    for accumulation, fails_at in ((4, 0), (2, 2)):
        torch.manual_seed(0)
        job = Job.from_fields(batch_size=8, accumulation=accumulation)
        norms, layer = nn.Sequential(nn.BatchNorm2d(3)), OutOfMemory()
        if is_frozen:
            freeze_norms(norms)
        stepper, events, model = make_stepper(job, norms, layer)
        layer.left = fails_at
        stepper.step(batch_of(1.0, images=8), 1)
        stepper.step(batch_of(2.0, images=8), 2)
        states.append(model.state_dict())
        messages += [event.message for event in events if isinstance(event, Warned)]
    for name, tensor in states[0].items():
        torch.testing.assert_close(states[1][name], tensor)
    assert ["BatchNorm" in message for message in messages] == [not is_frozen]
