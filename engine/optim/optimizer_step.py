"""The optimizer, its learning rate schedule, its loss scaler and its averages, as one thing that a step calls."""

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
from engine.optim.loss_scaler import AgreedScaler
from engine.optim.shards import is_sharded, own_part, part_of, whole
from engine.torch_compat import let_schedule_begin

STEP_FACTOR = 0.1
"""The factor of the learning rate at each step down of the schedule "step"."""
POWER = 0.9
"""The exponent of the polynomial schedule, as in DeepLab (Chen et al. 2017, section 4.1) and torchvision's
references."""


class Group(NamedTuple):
    """How a parameter is trained: with `rate` times the learning rate, and whether its weights decay."""

    rate: float = 1.0
    decays: bool = True


Groups = Mapping[str, Group]
"""Groups by the parameters' names in the plain model; parameters without an entry are in the default group."""


class OptimizerStep:
    """Turns losses into an update of the parameters that this rank holds.

    A step is `zero_grad`, then `backward` for each part of the batch (a pipeline's schedule calls `scale` and goes
    backward itself), then `step`. The same job gives the same updates whatever the strategy: parameters are grouped
    by their names (`groups`, see `parameter_groups`), gradients are clipped by the norm of all of them whichever
    ranks hold them, and the schedule counts steps alone. fp16 scales the loss and leaves a step out where gradients
    overflow on any rank.

    Parameters named in `repeated` (`Strategy.repeated`) are left to another rank where values are added up over the
    ranks.

    `buffers` are those that are averaged with the parameters, by name.

    Where the job skips steps that are not finite, each is looked at before it is made: whether the loss and, but for
    fp16's scaler, which sees to that itself, the norm of the gradients is finite on all ranks, which learn it by
    `all_reduce_max` (`Collectives.all_reduce_max`). `skipped` says whether the last step was left out so, with which
    only the schedule moved. `updates` counts those that were made.

    The parameters named in `held` stay as they are, whatever their gradients, until `release`. Whenever parameters
    have been changed, `share_updates` (`Strategy.share_updates`) is called.

    Of a DTensor, as FSDP makes them, the optimizer is given this rank's shard as a plain tensor: that spares it
    DTensor's dispatch, and its fused form serves all strategies alike.
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
        share_updates: Callable[[], None] = lambda: None,
        frozen: Collection[str] = (),
        repeated: Collection[str] = (),
        groups: Groups = MappingProxyType({}),
        buffers: Sequence[tuple[str, Tensor]] = (),
    ) -> None:
        self.skipped = False
        self.updates = 0
        self._device = device
        self._sum_over_shards = sum_over_shards
        self._all_reduce_max = all_reduce_max
        self._share_updates = share_updates
        self._skips = job.faults.on_not_finite == "skip"
        self._clip_norm = job.training.clip_norm
        # The optimizer numbers them group by group.
        parameters = sorted(parameters, key=lambda named: groups.get(named[0], Group()), reverse=True)
        self._parameters = dict(parameters)
        self._own: list[Tensor] = [
            own_part(parameter).requires_grad_() if is_sharded(parameter) else parameter for _, parameter in parameters
        ]
        self._counted = [own for name, own in zip(self._parameters, self._own, strict=True) if name not in repeated]
        self._has_frozen = bool(frozen)
        self._frozen = [own for (name, _), own in zip(parameters, self._own, strict=True) if name in frozen]
        self._shards = [(p, own) for (_, p), own in zip(parameters, self._own, strict=True) if own is not p]
        # A pipeline's stage may hold nothing to train; an optimizer wants a parameter all the same.
        grouped = [(own, groups.get(name, Group())) for name, own in zip(self._parameters, self._own, strict=True)]
        self.optimizer = _optimizer(job, grouped or [(torch.zeros(0, device=device, requires_grad=True), Group())])
        self._schedule = _schedule(job, self.optimizer, steps_per_epoch)
        # It may move before the optimizer's first step, of which torch would warn: where a run goes on, or skips that.
        let_schedule_begin(self.optimizer)
        # Beside the parameters: a fused optimizer would read from a copy on its way to shards that are kept on the CPU
        # whether gradients overflowed, without waiting for it (torch/optim/adam.py, `_fused_adam`).
        beside = self._own[0].device if self._own else device
        self._scaler = AgreedScaler(beside, sum_over_shards, enabled=job.precision.name == "fp16")
        self._buffers = dict(buffers)
        averaged = [*self._own, *self._buffers.values()]
        self._averages = (
            Averages(averaged, job.training.ema_decay, job.training.ema_ramp)
            if job.training.ema_decay is not None
            else None
        )

    @property
    def learning_rate(self) -> float:
        """Of the next step, for a parameter whose group has it undivided."""
        group = self.optimizer.param_groups[0]
        return float(group["lr"]) / float(group["rate"])

    @property
    def averages(self) -> bool:
        """Whether an average of the weights is kept."""
        return self._averages is not None

    @property
    def has_frozen(self) -> bool:
        """Whether `release` has yet to be called for any parameter that this rank or another holds."""
        return self._has_frozen

    def release(self) -> None:
        """Updates all parameters from now on."""
        self._has_frozen, self._frozen = False, []

    def zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for parameter, _ in self._shards:
            parameter.grad = None

    def scale(self, loss: Tensor) -> Tensor:
        """`loss` as it is to be differentiated: multiplied by the loss scale under fp16."""
        return self._scaler.scale(loss)

    def backward(self, loss: Tensor) -> None:
        self.scale(loss).backward()

    def step(self, loss: Tensor | None = None) -> None:
        """Updates the parameters from the gradients added up since `zero_grad`, and moves the schedule.

        `loss` is this rank's part of the step's, without dimensions; None where it does not see it.
        """
        self._follow_shards()
        for parameter, own in self._shards:
            own.grad = None if parameter.grad is None else own_part(parameter.grad)
        for own in self._frozen:
            own.grad = None
        self.skipped = self._skips and not self._is_finite(loss)
        if not self.skipped:
            self._update()
        if self._schedule is not None:
            self._schedule.step()

    def _update(self) -> None:
        if self._scaler.is_enabled():
            self._scaler.unscale_(self.optimizer)
        if self._clip_norm is not None:
            self._clip(self._clip_norm)
        self._scaler.step(self.optimizer)
        self.updates += 1
        self._scaler.update()
        if self._averages is not None:
            self._averages.update(self.updates)
        self._share_updates()

    @torch.no_grad()
    def _is_finite(self, loss: Tensor | None) -> bool:
        """Whether the step is to be made. All ranks call it together; it waits for the device."""
        looked_at = [] if loss is None else [loss.to(self._device, torch.float64)]
        if not self._scaler.is_enabled():
            looked_at.append(self._norm().double())
        own = not looked_at or bool(torch.stack(looked_at).isfinite().all())
        return not self._all_reduce_max([int(not own)])[0]

    def _norm(self) -> Tensor:
        """Of the gradients that this rank holds and no other counts."""
        return get_total_norm([own.grad for own in self._counted if own.grad is not None]).to(self._device)

    @torch.no_grad()
    def _clip(self, limit: float) -> None:
        """As torch.nn.utils.clip_grad_norm_ does for the plain model, bit for bit where one rank holds it all."""
        norm = self._norm()
        # The square of an fp32 number is exact in fp64, and so is the root of that.
        squares = self._sum_over_shards(norm.double().square())
        clip_grads_with_norm_(self._own, limit, squares.sqrt().to(norm.dtype))

    def _follow_shards(self) -> None:
        """FSDP may move a shard to padded or pinned memory before its first use."""
        for parameter, own in self._shards:
            shard = own_part(parameter)
            if shard.data_ptr() != own.data_ptr():
                own.data = shard

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the parameters are their averages, where the job asks for these. No step may be made inside."""
        if self._averages is None:
            yield
            return
        self._follow_shards()
        with self._averages.in_place():
            self._share_updates()
            yield
        self._share_updates()

    def go_to(self, steps: int) -> None:
        """Sets the schedule to where it is after so many steps."""
        if self._schedule is None or not steps:
            return
        self._schedule.last_epoch = steps - 1
        self._schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """On the CPU, with whole tensors: the optimizer's state of each parameter by its name, the place in the
        schedule, the loss scale and the averages. Ranks that hold shards call it together. A GPU may still be copying
        it until it is synchronized with.
        """
        state = self.optimizer.state_dict()["state"]
        group_step = self.optimizer.param_groups[0].get("step")
        averages = self._averages.tensors if self._averages is not None else []
        averaged = self._parameters | self._buffers if averages else {}
        return {
            "state": {
                name: {
                    key: whole(value, parameter) if isinstance(value, Tensor) else value
                    for key, value in state[number].items()
                }
                for number, (name, parameter) in enumerate(self._parameters.items())
                if number in state
            },
            "schedule": None if self._schedule is None else self._schedule.last_epoch,
            "updates": self.updates,
            # LAMB counts its steps by groups.
            "group_step": None if group_step is None else int(group_step),
            "scaler": self._scaler.state_dict(),
            "ema": {
                name: whole(average, tensor) for (name, tensor), average in zip(averaged.items(), averages, strict=True)
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave on any ranks; names that this rank does not hold are passed over.

        The hyperparameters are the job's. Averages that `state` does not have begin at the weights as they are,
        so the model's own state is to be loaded before. Ranks that hold shards call it together.
        """
        self._follow_shards()
        held = {
            number: {
                key: laid_out_as(own, part_of(value, parameter)) if isinstance(value, Tensor) else value
                for key, value in state["state"][name].items()
            }
            for number, ((name, parameter), own) in enumerate(zip(self._parameters.items(), self._own, strict=True))
            if name in state["state"]
        }
        groups = self.optimizer.state_dict()["param_groups"]
        if state.get("group_step") is not None:
            groups = [group | {"step": state["group_step"]} for group in groups]
        self.optimizer.load_state_dict({"state": held, "param_groups": groups})
        self.updates = state.get("updates", 0)
        if state["schedule"] is not None:
            self.go_to(state["schedule"])
        if self._scaler.is_enabled() and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])
        if self._averages is not None:
            self._averages.restart(
                [
                    part_of(state["ema"][name], tensor) if name in state["ema"] else None
                    for name, tensor in (self._parameters | self._buffers).items()
                ]
            )


def laid_out_as(parameter: Tensor, value: Tensor) -> Tensor:
    """`value` with the strides of the `parameter` that it belongs to, which fused optimizers take for granted: a
    checkpoint may come from a run of another memory format.
    """
    if value.shape != parameter.shape or value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device, requires_grad=False).copy_(value)


def merge_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The state of the whole model from the `OptimizerStep.state_dict` of ranks that hold parts of it."""
    return states[0] | {
        part: {name: value for state in states for name, value in state[part].items()} for part in ("state", "ema")
    }


def _optimizer(job: Job, grouped: Sequence[tuple[Tensor, Group]]) -> Optimizer:
    groups: list[dict[str, Any]] = [
        {
            "params": [tensor for tensor, own in grouped if own == group],
            "lr": job.optimizer.learning_rate * group.rate,
            "rate": group.rate,
            "weight_decay": job.optimizer.weight_decay if group.decays else 0.0,
        }
        for group in dict.fromkeys(group for _, group in grouped)
    ]
    rate, betas = job.optimizer.learning_rate, (job.optimizer.momentum, job.optimizer.beta2)
    foreach = {"foreach": job.optimizer.optimizer_kernel != "for_loop"}
    # The others have no fused form for all devices; foreach is the nearest to it.
    fused: dict[str, Any] = {"fused": True} if job.optimizer.optimizer_kernel == "fused" else foreach
    make: dict[str, Callable[[], Optimizer]] = {
        "sgd": lambda: SGD(groups, rate, momentum=job.optimizer.momentum, nesterov=job.optimizer.nesterov, **fused),
        "adam": lambda: Adam(groups, rate, betas, **fused),
        "adamw": lambda: AdamW(groups, rate, betas, **fused),
        "nadam": lambda: NAdam(groups, rate, betas, decoupled_weight_decay=True, **foreach),
        "radam": lambda: RAdam(groups, rate, betas, decoupled_weight_decay=True, **foreach),
        "rmsprop": lambda: RMSprop(groups, rate, alpha=job.optimizer.beta2, momentum=job.optimizer.momentum, **foreach),
        "adagrad": lambda: Adagrad(groups, rate, **foreach),
        "lamb": lambda: _lamb(groups, rate, betas, **foreach),
    }
    optimizer = make[job.optimizer.name]()
    if job.optimizer.name == "sgd" and job.optimizer.momentum and (job.precision.name == "fp16" or job.unfreezes):
        # torch's fused SGD (2.15) allocates the momentum in its first step, also where that is left out for an
        # overflow, and then goes on from whatever is in that memory; and it cannot go on from that of some
        # parameters alone, as when a backbone is unfrozen. From 0 the first step is the same.
        for tensor, _ in grouped:
            optimizer.state[tensor]["momentum_buffer"] = torch.zeros_like(tensor)
    return optimizer


def _lamb(groups: list[dict[str, Any]], rate: float, betas: tuple[float, float], *, foreach: bool) -> Optimizer:
    from timm.optim import Lamb  # timm takes a while to import

    # Gradients are clipped by the job's own limit.
    return Lamb(groups, rate, betas=betas, max_grad_norm=None, foreach=foreach)


def _schedule(job: Job, optimizer: Optimizer, steps_per_epoch: int) -> LRScheduler | None:
    """The schedule, which moves with every step.

    It gives the learning rate from the count of its moves alone (torch's CosineAnnealingLR goes from one rate to
    the next), so that a run that goes on from a checkpoint may have more epochs than the one that wrote it.
    """
    steps = job.training.epochs * steps_per_epoch
    if job.schedule.name == "onecycle":  # which warms up by itself
        rates = [group["lr"] for group in optimizer.param_groups]
        # One step more, since the schedule is also moved after the last step.
        return OneCycleLR(
            optimizer, rates, steps + 1, cycle_momentum=job.optimizer.momentum > 0 and job.optimizer.name != "adagrad"
        )
    warmup = warmup_steps(job, steps_per_epoch)
    if job.schedule.name == "none" and not warmup:
        return None

    def factor(done: int) -> float:
        if done < warmup:
            return job.schedule.warmup_start + (1 - job.schedule.warmup_start) * done / warmup
        return _falling(job, (done - warmup) / max(1, steps - warmup), done // steps_per_epoch)

    return LambdaLR(optimizer, factor)


def warmup_steps(job: Job, steps_per_epoch: int) -> int:
    """How many steps the learning rate rises for."""
    return max(job.schedule.warmup_steps, round(job.schedule.warmup_epochs * steps_per_epoch))


def _falling(job: Job, progress: float, epochs: int) -> float:
    """The share of the learning rate after the share `progress` of the steps behind the warm-up, `epochs` epochs of
    all.
    """
    match job.schedule.name:
        case "step":
            third = math.ceil(job.training.epochs / 3)
            return STEP_FACTOR ** (
                sum(epochs >= at for at in job.schedule.milestones) if job.schedule.milestones else epochs // third
            )
        case "cosine":
            # Loshchilov and Hutter 2017, SGDR, without restarts.
            falling = 0.5 * (1 + math.cos(math.pi * progress))
        case "linear":
            falling = 1 - progress
        case "poly":
            falling = max(0.0, 1 - progress) ** POWER
        case _:
            return 1.0
    return job.schedule.final_rate + (1 - job.schedule.final_rate) * falling
