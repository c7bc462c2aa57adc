"""The optimizer, its learning rate schedule and its loss scaler, as one thing that a step calls."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR, StepLR

from engine.contract.job import Job

MOMENTUM = 0.9
STEP_FACTOR = 0.1
"""What StepLR multiplies the learning rate with after each third of the epochs."""


class Updater:
    """Turns a loss into an update of the parameters that this rank holds.

    The same job gives the same updates whatever the strategy: all parameters are in one group, and the
    schedule counts steps or epochs alone. Cosine and OneCycle move with every step, StepLR with epochs.
    fp16 scales the loss (CUDA only) and leaves a step out where gradients overflow.
    """

    def __init__(
        self, parameters: list[tuple[str, nn.Parameter]], job: Job, steps_per_epoch: int, device: torch.device
    ) -> None:
        self._names = [name for name, _ in parameters]
        tensors: list[Tensor] = [parameter for _, parameter in parameters]
        # A pipeline's stage may hold nothing to train; an optimizer wants a parameter all the same.
        self.optimizer = _optimizer(job, tensors or [torch.zeros(0, device=device, requires_grad=True)])
        self._schedule, self._by_epoch = _schedule(job, self.optimizer, job.epochs * steps_per_epoch)
        self._scaler = torch.amp.GradScaler(device.type, enabled=job.precision == "fp16")
        if job.precision == "fp16":
            # The first steps overflow while the scale is found, and are left out before any schedule step.
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step\\(\\)` before")

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor) -> None:
        self._scaler.scale(loss).backward()

    def step(self) -> None:
        """Updates the parameters from their gradients and moves the schedule."""
        self._scaler.step(self.optimizer)
        self._scaler.update()
        if self._schedule is not None and not self._by_epoch:
            self._schedule.step()

    def epoch_ended(self) -> None:
        if self._schedule is not None and self._by_epoch:
            self._schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """On the CPU: the optimizer's state of each parameter by its name, the schedule's and the scaler's."""
        state = self.optimizer.state_dict()["state"]
        return {
            "state": {name: _on_cpu(state[number]) for number, name in enumerate(self._names) if number in state},
            "schedule": None if self._schedule is None else self._schedule.state_dict(),
            "scaler": self._scaler.state_dict(),
            "learning_rate": self.learning_rate,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave; names that this rank does not hold are passed over."""
        current = self.optimizer.state_dict()
        held = {number: state["state"][name] for number, name in enumerate(self._names) if name in state["state"]}
        self.optimizer.load_state_dict({"state": held, "param_groups": current["param_groups"]})
        if self._schedule is not None and state["schedule"] is not None:
            self._schedule.load_state_dict(state["schedule"])
        self._scaler.load_state_dict(state["scaler"])
        for group in self.optimizer.param_groups:
            group["lr"] = state["learning_rate"]


def _optimizer(job: Job, tensors: list[Tensor]) -> Optimizer:
    rate, decay = job.learning_rate, job.weight_decay
    match job.optimizer:
        case "sgd":
            return SGD(tensors, rate, momentum=MOMENTUM, weight_decay=decay, fused=True)
        case "adam":
            return Adam(tensors, rate, weight_decay=decay, fused=True)
        case "adamw":
            return AdamW(tensors, rate, weight_decay=decay, fused=True)


def _schedule(job: Job, optimizer: Optimizer, steps: int) -> tuple[LRScheduler | None, bool]:
    """The schedule, and whether it moves by epochs rather than by steps."""
    match job.schedule:
        case "none":
            return None, False
        case "step":
            return StepLR(optimizer, math.ceil(job.epochs / 3), STEP_FACTOR), True
        case "cosine":
            return CosineAnnealingLR(optimizer, steps), False
        case "onecycle":
            # One more, since the schedule is also moved after the last step.
            return OneCycleLR(optimizer, job.learning_rate, steps + 1), False


def _on_cpu(state: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value for key, value in state.items()
    }
