"""Training with a backbone that is frozen for the first epochs of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection

from torch import nn

from engine.contract.events import Event, LogLine
from engine.models.model_surgery import freeze_norms
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import Strategy
from engine.training.callbacks.callback import Callback
from engine.training.oom_retry import ResilientStep


class Unfreezing(Callback):
    """Callback that unfreezes the backbone after the job's `freeze_epochs`."""

    def __init__(
        self, strategy: Strategy, optimizer_step: OptimizerStep, stepper: ResilientStep, emit: Callable[[Event], None]
    ) -> None:
        self._strategy = strategy
        self._optimizer_step = optimizer_step
        self._stepper = stepper
        self._emit = emit

    def on_epoch_start(self, epoch: int) -> None:
        """Unfreeze the backbone, if it is still frozen, after the job's `freeze_epochs`, and report this in the log.

        A compiled model then runs eagerly, because it was compiled for the frozen backbone.
        """
        job = self._strategy.job
        if epoch <= job.model.freeze_epochs or not self._optimizer_step.has_frozen:
            return
        self._optimizer_step.unfreeze()
        unfreeze(self._strategy.model)
        if job.model.freeze_batchnorm:
            freeze_norms(self._strategy.model)
        self._stepper.refresh_buffers()  # unfrozen BatchNorm layers update their statistics from now on
        self._stepper.stop_compiling("it was compiled for the frozen model, which is now unfrozen")
        self._emit(LogLine(text=f"All layers are trained from epoch {epoch} on"))


def enable_frozen_gradients(model: nn.Module) -> frozenset[str]:
    """Enable the gradients of the frozen parameters of `model`, and return the names of these parameters.

    With gradients enabled, every strategy prepares the parameters for their later training. Until then, the optimizer
    drops their gradients (until `OptimizerStep.unfreeze`), so that neither decay nor momentum changes them.
    """
    frozen = frozenset(name for name, parameter in model.named_parameters() if not parameter.requires_grad)
    for parameter in model.parameters():
        parameter.requires_grad_()
    return frozen


def disable_gradients(model: nn.Module, frozen: Collection[str]) -> None:
    """Disable the gradients of the parameters named in `frozen`, so that the backward pass doesn't compute them.

    This is only for a single worker, because other ranks would wait for these gradients.
    """
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)


def unfreeze(model: nn.Module) -> None:
    """Enable the gradients of all parameters, and undo `freeze_norms`, so that norms use batch statistics again."""
    for parameter in model.parameters():
        parameter.requires_grad_()
    for module in model.modules():
        if "train" in vars(module):
            del module.train  # the instance's attribute, which hid the class's method
            module.train(model.training)
