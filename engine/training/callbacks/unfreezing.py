"""A frozen backbone that is to be trained later in the run."""

from __future__ import annotations

from collections.abc import Callable, Collection

from torch import nn

from engine.contract.events import Event, LogLine
from engine.models.model_surgery import still_norms
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import Strategy
from engine.training.callbacks.callback import Callback
from engine.training.oom_retry import ResilientStep


class Unfreezing(Callback):
    """Trains a backbone that is frozen for the job's first epochs, once they are over."""

    def __init__(
        self, strategy: Strategy, optimizer_step: OptimizerStep, stepper: ResilientStep, emit: Callable[[Event], None]
    ) -> None:
        self._strategy = strategy
        self._optimizer_step = optimizer_step
        self._stepper = stepper
        self._emit = emit

    def on_epoch_start(self, epoch: int) -> None:
        job = self._strategy.job
        if epoch <= job.freeze_epochs or not self._optimizer_step.has_frozen:
            return
        self._optimizer_step.release()
        unfreeze(self._strategy.model)
        if job.freeze_batchnorm:
            still_norms(self._strategy.model)
        self._stepper.refresh_buffers()
        self._stepper.stop_compiling("it was compiled for the frozen model, which is now unfrozen")
        self._emit(LogLine(text=f"All layers are trained from epoch {epoch} on"))


def mark_frozen(model: nn.Module) -> frozenset[str]:
    """The names of the frozen parameters of `model`, which take gradients from now on.

    So every strategy lays them out, joins and cuts as it will have to when they are trained; until then the updater
    lets their gradients fall (`OptimizerStep.release`), and with them the optimizer does nothing to them: no decay,
    no momentum.
    """
    held = frozenset(name for name, parameter in model.named_parameters() if not parameter.requires_grad)
    for parameter in model.parameters():
        parameter.requires_grad_()
    return held


def disable_gradients(model: nn.Module, held: Collection[str]) -> None:
    """Spares the backward pass the gradients of the parameters named in `held`, where a single worker has them all and
    nothing but its updater waits for them.
    """
    for name, parameter in model.named_parameters():
        if name in held:
            parameter.requires_grad_(False)


def unfreeze(model: nn.Module) -> None:
    """Has all parameters take gradients again, and lets the layers take part in `train` that
    `model_surgery.still_norms` keeps out of it, those of BatchNorm.
    """
    for parameter in model.parameters():
        parameter.requires_grad_()
    for module in model.modules():
        if "train" in vars(module):
            del module.train  # the instance's, before which the class's was hidden
            module.train(model.training)
