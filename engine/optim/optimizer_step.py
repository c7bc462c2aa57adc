"""Optimizer step with a learning rate schedule, loss scaling and weight averaging, for all strategies."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import SGD, Adagrad, Adam, AdamW, NAdam, Optimizer, RAdam, RMSprop
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from engine.contract.job import Job
from engine.optim.averaging import Averages
from engine.optim.host_copies import copy_to_host
from engine.optim.loss_scaler import AgreedScaler
from engine.optim.shards import copy_shard, get_local_shard, get_slice, is_sharded
from engine.torch_compat import suppress_schedule_warning

STEP_DECAY_FACTOR = 0.1
"""Factor on the learning rate each time that the schedule "step" lowers it."""
POLYNOMIAL_EXPONENT = 0.9
"""Exponent of the polynomial schedule, as in DeepLab (Chen et al. 2017, section 4.1) and torchvision's references."""


class Group(NamedTuple):
    """Parameter group. `rate` is the factor on the learning rate. `decays` is True if weight decay applies."""

    rate: float = 1.0
    decays: bool = True


Groups = Mapping[str, Group]
"""Group of each parameter, by its name in the plain model. Parameters that are not listed are in the default group."""


class OptimizerStep:
    """Optimizer step that turns losses into updates of this rank's parameters.

    A step consists of `zero_grad`, `backward` for each part of the batch, and `step`. A pipeline calls `scale` instead
    of `backward`, because its schedule runs the backward passes. All strategies perform the same updates: parameters
    are grouped by name, gradients are clipped by the norm of all gradients on all ranks, and the schedule depends only
    on the number of steps. With fp16, the loss is scaled, and a step is skipped if gradients overflow on any rank.

    If the job skips steps that are not finite, the loss and the norm of the gradients must be finite on all ranks
    before each update. With fp16, the scaler checks the gradients instead.

    If parameters are DTensors, as under FSDP, the optimizer updates their local shards as plain tensors. This avoids
    DTensor's dispatch, and allows the fused optimizer under all strategies.

    Args:
        parameters: Parameters with their names in the plain model.
        job: Job with its automatic choices.
        steps_per_epoch: Number of steps per epoch.
        device: Device of this rank.
        sum_over_shards: `Strategy.sum_over_shards`.
        all_reduce_max: `Collectives.all_reduce_max`.
        broadcast_updates: `Strategy.broadcast_updates`, called after each change of parameters.
        frozen: Names of parameters that are not updated until `unfreeze`.
        duplicates: `Strategy.duplicate_parameters`, names of parameters that another rank counts in sums.
        groups: Groups of parameters (see `create_parameter_groups`).
        buffers: Buffers that are averaged like parameters, with their names.

    Attributes:
        skipped: True if the last step was not finite and only advanced the schedule.
        updates: Number of performed updates.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, nn.Parameter]],
        job: Job,
        steps_per_epoch: int,
        device: torch.device,
        sum_over_shards: Callable[[Tensor], Tensor] = lambda value: value,
        *,
        all_reduce_max: Callable[[Sequence[int]], list[int]] = list,
        broadcast_updates: Callable[[], None] = lambda: None,
        frozen: Collection[str] = (),
        duplicates: Collection[str] = (),
        groups: Groups = MappingProxyType({}),
        buffers: Sequence[tuple[str, Tensor]] = (),
    ) -> None:
        self.skipped = False
        self.updates = 0
        self._device = device
        self._sum_over_shards = sum_over_shards
        self._all_reduce_max = all_reduce_max
        self._broadcast_updates = broadcast_updates  # called after each change of parameters
        self._skips_not_finite = job.faults.on_not_finite == "skip"
        self._clip_norm = job.training.clip_norm
        # The optimizer numbers parameters group by group. The group with the highest rate comes first, since
        # `learning_rate` divides by the rate of the first one.
        parameters = sorted(parameters, key=lambda named: groups.get(named[0], Group()), reverse=True)
        self._parameters = dict(parameters)
        # Each parameter with its name and the tensor that the optimizer updates.
        updates: list[tuple[str, nn.Parameter, Tensor]] = [
            (name, parameter, get_local_shard(parameter).requires_grad_() if is_sharded(parameter) else parameter)
            for name, parameter in parameters
        ]
        self._updated = [tensor for _, _, tensor in updates]
        # Tensors that this rank counts in the norm of all gradients. Other ranks count the duplicates.
        self._counted_in_norm = [tensor for name, _, tensor in updates if name not in duplicates]
        # Tensors that are not updated until `unfreeze`. Other ranks may have some even if this rank has none.
        self._has_frozen = bool(frozen)
        self._frozen = [tensor for name, _, tensor in updates if name in frozen]
        # Sharded parameters with their local shards, which receive the gradients before each update.
        self._shards = [(parameter, tensor) for _, parameter, tensor in updates if tensor is not parameter]
        grouped = [(tensor, groups.get(name, Group())) for name, _, tensor in updates]
        # An optimizer requires a parameter, but a pipeline's stage may have nothing to train.
        nothing_to_train = [(torch.zeros(0, device=device, requires_grad=True), Group())]
        self.optimizer = _create_optimizer(job, grouped or nothing_to_train)
        self._schedule = _create_schedule(job, self.optimizer, steps_per_epoch)
        # Prevents torch's warning about a schedule that advances before the first update, as in resumed runs.
        suppress_schedule_warning(self.optimizer)
        # Use the parameters' device: with shards on the CPU, a fused optimizer would read the overflow flag from an
        # unfinished copy (torch/optim/adam.py, `_fused_adam`).
        scaler_device = self._updated[0].device if self._updated else device
        self._scaler = AgreedScaler(scaler_device, sum_over_shards, enabled=job.precision.name == "fp16")
        self._buffers = dict(buffers)
        averaged = [*self._updated, *self._buffers.values()]
        self._averages = (
            Averages(averaged, job.training.ema_decay, job.training.ema_ramp)
            if job.training.ema_decay is not None
            else None
        )

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step, for a parameter group whose factor is 1."""
        group = self.optimizer.param_groups[0]
        return float(group["lr"]) / float(group["rate"])

    @property
    def has_averages(self) -> bool:
        """True if moving averages of the weights are computed."""
        return self._averages is not None

    @property
    def has_frozen(self) -> bool:
        """True until `unfreeze` is called if any rank has frozen parameters."""
        return self._has_frozen

    def unfreeze(self) -> None:
        """Let the following steps also update the frozen parameters."""
        self._has_frozen, self._frozen = False, []

    def zero_grad(self) -> None:
        """Delete the gradients of the parameters, and of the local shards that the optimizer updates."""
        self.optimizer.zero_grad(set_to_none=True)
        for parameter, _ in self._shards:
            parameter.grad = None

    def scale(self, loss: Tensor) -> Tensor:
        """Return `loss` multiplied by the loss scale of fp16, for the backward pass."""
        return self._scaler.scale(loss)

    def backward(self, loss: Tensor) -> None:
        self.scale(loss).backward()

    def step(self, loss: Tensor | None = None) -> None:
        """Update the parameters with their gradients, and advance the schedule. All ranks call it together.

        `loss` is this rank's contribution to the step's loss, as a 0-dimensional tensor, or None if this rank does not
        know it.
        """
        self._refresh_shards()
        for parameter, shard in self._shards:
            shard.grad = None if parameter.grad is None else get_local_shard(parameter.grad)
        for shard in self._frozen:
            shard.grad = None
        self.skipped = self._skips_not_finite and not self._is_finite(loss)
        if not self.skipped:
            self._update()
        if self._schedule is not None:
            self._schedule.step()

    def _update(self) -> None:
        """Clip the gradients, update the parameters and their averages, and share the updates with other ranks."""
        if self._scaler.is_enabled():
            self._scaler.unscale_(self.optimizer)
        if self._clip_norm is not None:
            self._clip_gradients(self._clip_norm)
        self._scaler.step(self.optimizer)
        self.updates += 1
        self._scaler.update()
        if self._averages is not None:
            self._averages.update(self.updates)
        self._broadcast_updates()

    @torch.no_grad()
    def _is_finite(self, loss: Tensor | None) -> bool:
        """Return True if the loss and the gradients are finite on all ranks. All ranks call it together.

        With fp16, only the loss is checked here, since the scaler checks the gradients. This waits for the device.
        """
        checked = [] if loss is None else [loss.to(self._device, torch.float64)]
        if not self._scaler.is_enabled():
            checked.append(self._compute_gradient_norm().double())
        is_finite = not checked or bool(torch.stack(checked).isfinite().all())
        return not self._all_reduce_max([int(not is_finite)])[0]

    def _compute_gradient_norm(self) -> Tensor:
        """Return the norm of this rank's gradients, without those of parameters that another rank counts."""
        gradients = [tensor.grad for tensor in self._counted_in_norm if tensor.grad is not None]
        return get_total_norm(gradients).to(self._device)

    @torch.no_grad()
    def _clip_gradients(self, limit: float) -> None:
        """Scale the gradients so that their norm over all ranks is at most `limit`. All ranks call it together.

        The result equals that of torch.nn.utils.clip_grad_norm_ for the plain model. On a single rank, it is
        bit-identical.
        """
        norm = self._compute_gradient_norm()
        # The square of an fp32 number is exact in fp64, and so is the root of this square.
        squares = self._sum_over_shards(norm.double().square())
        clip_grads_with_norm_(self._updated, limit, squares.sqrt().to(norm.dtype))

    def _refresh_shards(self) -> None:
        """Update the references to the local shards. FSDP may move these to padded or pinned memory at its start."""
        for parameter, shard in self._shards:
            current = get_local_shard(parameter)
            if current.data_ptr() != shard.data_ptr():
                shard.data = current

    @contextmanager
    def use_averages(self) -> Iterator[None]:
        """Context manager that replaces the parameters with their averages, if there are any.

        No step may run inside it.
        """
        if self._averages is None:
            yield
            return
        self._refresh_shards()
        with self._averages.swap_in():
            self._broadcast_updates()
            yield
        self._broadcast_updates()  # the parameters are restored

    def set_schedule_step(self, steps: int) -> None:
        """Set the schedule to its state after `steps` steps, without updates."""
        if self._schedule is None or not steps:
            return
        self._schedule.last_epoch = steps - 1  # torch calls steps epochs
        self._schedule.step()

    def state_dict(self, collect: Callable[[Tensor, Any], Tensor | None] | None = None) -> dict[str, Any]:
        """Return the state of the optimizer, schedule, loss scale and averages.

        Tensors are listed by the parameter's name. `collect` is called with each tensor and its parameter, and returns
        the tensor to be saved. It may return None on ranks that do not save the state. By default, tensors are copied
        to the CPU (see `copy_to_host`).
        """
        if collect is None:
            return copy_to_host(self.state_dict(lambda tensor, _: tensor))
        state = self.optimizer.state_dict()["state"]  # by the number of the parameter
        group_step = self.optimizer.param_groups[0].get("step")
        averages = self._averages.tensors if self._averages is not None else []
        averaged = self._parameters | self._buffers if averages else {}
        return {
            "state": {
                name: {
                    key: collect(value, parameter) if isinstance(value, Tensor) else value
                    for key, value in state[number].items()
                }
                for number, (name, parameter) in enumerate(self._parameters.items())
                if number in state
            },
            # Number of steps, which torch calls epochs.
            "schedule": None if self._schedule is None else self._schedule.last_epoch,
            "updates": self.updates,
            # LAMB counts steps per group.
            "group_step": None if group_step is None else int(group_step),
            "scaler": self._scaler.state_dict(),
            "ema": {
                name: collect(average, tensor)
                for (name, tensor), average in zip(averaged.items(), averages, strict=True)
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state from `state_dict`. States of other ranks' parameters are ignored.

        Hyperparameters are not loaded, since the job determines them. Averages that are missing in `state` start with
        the current weights, so the model's state must be loaded first. Ranks with shards call this together.
        """
        self._refresh_shards()
        local_state = {
            number: {
                key: copy_shard(value, parameter) if isinstance(value, Tensor) else value
                for key, value in state["state"][name].items()
            }
            for number, (name, parameter) in enumerate(self._parameters.items())
            if name in state["state"]
        }
        groups = self.optimizer.state_dict()["param_groups"]
        if state.get("group_step") is not None:  # of LAMB, which counts steps per group
            groups = [group | {"step": state["group_step"]} for group in groups]
        self.optimizer.load_state_dict({"state": local_state, "param_groups": groups})
        self.updates = state.get("updates", 0)
        if state["schedule"] is not None:
            self.set_schedule_step(state["schedule"])
        if self._scaler.is_enabled() and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])
        if self._averages is not None:
            self._averages.restart(
                get_slice(state["ema"][name], tensor) if name in state["ema"] else None
                for name, tensor in (self._parameters | self._buffers).items()
            )


def merge_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the states of ranks that hold different parts of a model into the state for the full model."""
    return states[0] | {
        section: {name: value for state in states for name, value in state[section].items()}
        for section in ("state", "ema")
    }


def _create_optimizer(job: Job, grouped: Sequence[tuple[Tensor, Group]]) -> Optimizer:
    """Create the job's optimizer for the pairs of a tensor and its `Group` in `grouped`.

    It has a parameter group for each different `Group`, in the order of their first tensors.
    """
    groups: list[dict[str, Any]] = [
        {
            "params": [tensor for tensor, tensor_group in grouped if tensor_group == group],
            "lr": job.optimizer.learning_rate * group.rate,
            "rate": group.rate,
            "weight_decay": job.optimizer.weight_decay if group.decays else 0.0,
        }
        for group in dict.fromkeys(group for _, group in grouped)
    ]
    rate, betas = job.optimizer.learning_rate, (job.optimizer.momentum, job.optimizer.beta2)
    foreach = {"foreach": job.optimizer.optimizer_kernel != "for_loop"}
    # The other optimizers have no fused version for all devices; foreach is closest to it.
    kernel: dict[str, Any] = {"fused": True} if job.optimizer.optimizer_kernel == "fused" else foreach
    create_by_name: dict[str, Callable[[], Optimizer]] = {
        "sgd": lambda: SGD(groups, rate, momentum=job.optimizer.momentum, nesterov=job.optimizer.nesterov, **kernel),
        "adam": lambda: Adam(groups, rate, betas, **kernel),
        "adamw": lambda: AdamW(groups, rate, betas, **kernel),
        "nadam": lambda: NAdam(groups, rate, betas, decoupled_weight_decay=True, **foreach),
        "radam": lambda: RAdam(groups, rate, betas, decoupled_weight_decay=True, **foreach),
        "rmsprop": lambda: RMSprop(groups, rate, alpha=job.optimizer.beta2, momentum=job.optimizer.momentum, **foreach),
        "adagrad": lambda: Adagrad(groups, rate, **foreach),
        "lamb": lambda: _create_lamb(groups, rate, betas, **foreach),
    }
    optimizer = create_by_name[job.optimizer.name]()
    if (
        job.optimizer.name == "sgd"
        and job.optimizer.momentum
        and (job.precision.name == "fp16" or job.unfreezes_backbone)
    ):
        # torch's fused SGD (2.15) allocates the momentum in its first step. If an overflow skips that step, it later
        # reads uninitialized memory. It also fails if only some parameters have momentum, as after unfreezing a
        # backbone. A momentum of 0 avoids both and results in the same first step.
        for tensor, _ in grouped:
            optimizer.state[tensor]["momentum_buffer"] = torch.zeros_like(tensor)
    return optimizer


def _create_lamb(groups: list[dict[str, Any]], rate: float, betas: tuple[float, float], *, foreach: bool) -> Optimizer:
    """Create timm's LAMB optimizer with the learning rate `rate`, without its clipping of gradients."""
    from timm.optim import Lamb  # timm takes a while to import

    # The job's own limit already clips gradients.
    return Lamb(groups, rate, betas=betas, max_grad_norm=None, foreach=foreach)


def _create_schedule(job: Job, optimizer: Optimizer, steps_per_epoch: int) -> LRScheduler | None:
    """Create the learning rate schedule, which advances with every step. Return None if the learning rate is constant.

    It computes the learning rate only from the number of steps, so that a resumed run may have more epochs than the run
    before it. (torch's CosineAnnealingLR computes it from the previous learning rate.)
    """
    steps = job.training.epochs * steps_per_epoch
    if job.schedule.name == "onecycle":  # it includes a warm-up
        rates = [group["lr"] for group in optimizer.param_groups]
        has_momentum = job.optimizer.momentum > 0 and job.optimizer.name != "adagrad"  # Adagrad has none
        # The schedule also advances after the last step, which needs one step more.
        return OneCycleLR(optimizer, rates, steps + 1, cycle_momentum=has_momentum)
    warmup = count_warmup_steps(job, steps_per_epoch)
    if job.schedule.name == "none" and not warmup:
        return None

    def factor(done: int) -> float:
        """Return the factor on the learning rate after `done` steps."""
        if done < warmup:
            return job.schedule.warmup_start + (1 - job.schedule.warmup_start) * done / warmup
        return _compute_decay_factor(job, (done - warmup) / max(1, steps - warmup), done // steps_per_epoch)

    return LambdaLR(optimizer, factor)


def count_warmup_steps(job: Job, steps_per_epoch: int) -> int:
    """Return the number of warm-up steps at the beginning of the run."""
    return max(job.schedule.warmup_steps, round(job.schedule.warmup_epochs * steps_per_epoch))


def _compute_decay_factor(job: Job, progress: float, epochs: int) -> float:
    """Return the factor on the learning rate after the warm-up.

    `progress` is the completed fraction of the steps after the warm-up, and `epochs` the number of completed epochs.
    """
    match job.schedule.name:
        case "step":
            if job.schedule.milestones:
                decays = sum(epochs >= milestone for milestone in job.schedule.milestones)
            else:
                decays = epochs // math.ceil(job.training.epochs / 3)  # after each third of the epochs
            return STEP_DECAY_FACTOR**decays
        case "cosine":
            # Loshchilov and Hutter 2017, SGDR, without restarts.
            decay = 0.5 * (1 + math.cos(math.pi * progress))
        case "linear":
            decay = 1 - progress
        case "poly":
            decay = max(0.0, 1 - progress) ** POLYNOMIAL_EXPONENT
        case _:
            return 1.0
    return job.schedule.final_rate + (1 - job.schedule.final_rate) * decay
