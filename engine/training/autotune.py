"""Automatic choices of precision, memory format and compilation, made when a run's workers start.

Some choices need a trial: each candidate runs a few forward and backward passes (`Rehearsal`) on the training device
with the run's batch size and model, without side effects. All ranks measure at the same time and add up their times, so
that they choose the same. Checkpoints store the choices, so that a resumed run computes exactly like the run before it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from engine.contract.events import Chosen
from engine.contract.images import varying_size_fields
from engine.contract.job import Job, fields_with_trait
from engine.strategies.base import Strategy, StrategyError, find_device_without_bf16
from engine.strategies.single import SingleDevice
from engine.strategies.speed import Rehearsal
from engine.system.format import counted
from engine.tasks.base import Objective
from engine.torch_compat import compile_in_this_process, is_compiled, undo_compiling

TRIAL_FRACTION = 0.04
"""Maximum total time for trials, as a fraction of the estimated time for all steps of the run."""
WARM_UP, MIN_PASSES, MAX_PASSES = 1, 2, 7
"""Number of warm-up passes, and minimum and maximum number of timed passes, for each candidate.

Passes beyond the minimum are only made until `ENOUGH_S` have passed.
"""
ENOUGH_S = 0.25
CLEAR = 3.0
"""Minimum ratio of two candidates' times per pass for rejecting the slower one without more passes."""
FASTER = 0.05
"""Minimum fraction of the time that a candidate must save to be chosen, because measurements vary by that much."""
COMPILING_S = 60.0
"""Estimated seconds for compiling a model and measuring it.

It takes 20 to 35 s on a CPU. On a GPU, it takes longer, because two modes are measured.
"""
COMPILING_SAVES = 0.3
"""Estimated fraction of a step's time that compiling saves at best.

On an A100, training was 43% faster on average over 163 models (Ansel et al. 2024, PyTorch 2).
"""
DEPTHWISE_S = 20.0
"""Estimated seconds for trying channels last with depthwise convolutions.

cuDNN compiles their kernels for every shape. For MobileNetV3 in bf16, that took 16 and 19 s on an H100 (cuDNN 9.19).
"""
DEPTHWISE_SAVES = 0.6
"""Estimated fraction of a step's time that channels last saves at best with depthwise convolutions.

It was measured at batch size 256.
"""

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class _TrialStopped(Exception):  # noqa: N818  (a state of things more than an error)
    """Raised on all ranks when the run should stop during a trial."""


class Autotuner:
    """Autotuner that chooses the precision, memory format and compilation for a run of `steps` steps.

    All ranks call `decide` before `Strategy.wrap`, and `compile` after it. Rank 0 reports each choice.

    Attributes:
        job: Job with the choices made in previous calls.
    """

    job: Job

    def __init__(
        self,
        strategy: Strategy,
        objective: Objective,
        example_shape: tuple[int, ...],
        *,
        steps: int,
        emit: Callable[[Chosen], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        """Prepare the choices for training `objective` with `strategy` in `steps` steps.

        `emit` reports a choice. `is_stopped` returns True once the run should stop or pause. Trials then end early.
        """
        self._strategy = strategy
        self._objective = objective
        self._example_shape = example_shape
        self._steps = steps
        self._max_passes = int(TRIAL_FRACTION * steps)  # maximum number of passes in the trial of memory formats
        self._emit = emit
        self._is_stopped = is_stopped
        self._error = ""  # reason why the last comparison failed on this rank, or ""

    def decide(self, job: Job, model: nn.Module, resumed_job: Mapping[str, Any]) -> Job:
        """Choose the precision and memory format for a model, and return `job` with these choices.

        `model` is the plain model in training mode. `resumed_job` has the fields of the job that this run resumes. It
        is empty if the run doesn't resume one. Where `can_reuse_choices` allows it, the resumed job's memory format,
        compilation and split points replace automatic ones. If the run is stopped during a trial, the memory format
        stays automatic, so that a resumed run repeats the trial.

        If the strategy's ranks hold only parts of the model, images stay contiguous and compiling is turned off. For a
        trial, `model` is moved to the strategy's device.
        """
        self.job, strategy = job, self._strategy
        if self.job.precision.name == "auto":
            self._choose_precision()
        if len(self._example_shape) != 3 and self.job.precision.memory_format != "contiguous":
            why = "only images can have their channels last, and these samples are not images"
            self._choose("memory_format", "contiguous", why)
        can_reuse = can_reuse_choices(resumed_job, self.job)
        if not strategy.entry.keeps_full_model:
            self._choose_for_partial_model(resumed_job if can_reuse else None)
            return self.job
        if can_reuse:
            self._restore_choices(resumed_job)
        if self.job.precision.memory_format == "auto":
            model.to(strategy.device)
            rehearsal = Rehearsal(strategy, self.job, model, self._objective, self._example_shape)
            with suppress(_TrialStopped), rehearsal:
                self._choose_memory_format(rehearsal, model)
        return self.job

    def _choose_for_partial_model(self, reused_job: Mapping[str, Any] | None) -> None:
        """Turn off what a rank with only a part of the model can't do, and reuse automatic split points.

        `reused_job` has the fields of the resumed run's job, or is None if its choices can't be reused.
        """
        split_points = self.job.parallel.split_points
        if reused_job is not None and not split_points:
            split_points = tuple(reused_job["split_points"])
        self.job = self.job.with_fields(memory_format="contiguous", compile="off", split_points=split_points)

    def compile(self) -> None:
        """Compile the wrapped model if the job requests it, or if the choice is automatic and a trial shows a gain.

        Strategies whose ranks hold only parts of the model never compile, since `decide` turns it off for them. If the
        run is stopped during a trial, the model isn't compiled. An automatic choice then stays automatic, so that a
        resumed run repeats the trial. Raises StrategyError if the job requests compiling and it fails.
        """
        self._compile()
        self._strategy.resolved_job = replace(self._strategy.resolved_job, job=self.job)

    def _compile(self) -> None:
        """Compile the model if the job requests it ("on"), or if a trial shows that it pays off ("auto").

        The strategy's job is not updated.

        For other batch shapes and in validations, a compiled model runs eagerly instead of being compiled again.
        """
        strategy = self._strategy
        requested = self.job.precision.compile
        if requested == "off":
            return
        assert isinstance(strategy, SingleDevice)  # or a subclass, such as that for DDP
        refusal = self._explain_skipping_compiling() if requested == "auto" else ""
        if refusal:
            self._choose("compile", "off", refusal)
            return
        rehearsal = Rehearsal(strategy, self.job, strategy.model, self._objective, self._example_shape)
        rehearsal.forward = strategy.forward  # what training calls: under DDP, a wrapper of the model
        try:
            with rehearsal, strategy.no_sync():
                if requested == "on":
                    self._require_compiling(rehearsal, strategy.model)
                else:
                    self._try_compiling(rehearsal, strategy.model)
        except _TrialStopped:  # the run should stop, so the trial has no result
            if is_compiled(strategy.model):
                undo_compiling(strategy.model)
        if is_compiled(strategy.model):
            # For other batch shapes and for validations, compiling again would cost more than it saves.
            torch.compiler.set_stance("eager_on_recompile")

    def _choose(self, field: str, choice: Any, why: str) -> None:
        """Set a field of the job to `choice`. Rank 0 reports the choice with the reason `why`, a clause."""
        self.job = self.job.with_fields(**{field: choice})
        if self._strategy.spec.rank == 0:
            self._emit(Chosen(field=field, choice=str(choice), why=why))

    def _choose_precision(self) -> None:
        """Choose bf16 if the devices of all ranks support it natively, otherwise fp32. All ranks call it together."""
        strategy = self._strategy
        devices_without_bf16 = strategy.collectives.all_gather_objects(find_device_without_bf16(strategy))  # by rank
        if not any(devices_without_bf16):
            self._choose("precision", "bf16", "the GPUs support bf16 natively, and it needs no loss scaling")
        elif strategy.device.type == "cuda":
            rank, device = next((rank, name) for rank, name in enumerate(devices_without_bf16) if name)
            self._choose("precision", "fp32", f"rank {rank}'s GPU ({device}) does not support bf16 natively")
        else:
            self._choose("precision", "fp32", "bf16 is chosen only on GPUs that support it natively")

    def _restore_choices(self, resumed_job: Mapping[str, Any]) -> None:
        """Reuse the memory format and compilation of the resumed run.

        `resumed_job` has the fields of the resumed run's job.
        """
        job = self.job
        if job.precision.memory_format == "auto" and resumed_job.get("memory_format") in FORMATS:
            self._choose("memory_format", resumed_job["memory_format"], "the resumed run used it")
        if job.precision.compile == "auto" and resumed_job.get("compile") in ("on", "off"):
            self._choose("compile", resumed_job["compile"], "the resumed run used this setting")

    def _choose_memory_format(self, rehearsal: Rehearsal, model: nn.Module) -> None:
        """Choose channels last if the model runs faster with it. Otherwise keep images contiguous."""
        refusal = self._explain_skipping_channels_last(rehearsal, model)
        if refusal:
            self._choose("memory_format", "contiguous", refusal)
            return
        candidates = [partial(_set_memory_format, rehearsal, model, each) for each in FORMATS.values()]
        pass_s = self._measure_candidates(rehearsal, *candidates)
        choice = "channels_last" if pass_s and _is_faster(*pass_s) else "contiguous"
        why = _explain_comparison("contiguous", "channels_last", *pass_s) if pass_s else self._trial_failed
        self._choose("memory_format", choice, why)
        _set_memory_format(rehearsal, model, FORMATS[choice])

    def _explain_skipping_channels_last(self, rehearsal: Rehearsal, model: nn.Module) -> str:
        """Return the reason why channels last should not be tried, or "" if it should be tried.

        For a model with depthwise convolutions on a GPU, this times some passes. All ranks must call it together.
        """
        if not any(parameter.dim() == 4 for parameter in model.parameters()):
            return "the model has no convolutions that would benefit"
        if self._max_passes < 2 * (WARM_UP + MIN_PASSES):  # for two memory formats
            return f"a run of {counted(self._steps, 'step')} is too short for a trial to pay off"
        if self._strategy.device.type == "cuda" and any(map(_is_depthwise, model.modules())):
            pass_s = self._time_current(rehearsal)
            if pass_s is None:
                return self._trial_failed
            return self._explain_too_short(pass_s, DEPTHWISE_SAVES, DEPTHWISE_S)
        return ""

    def _explain_too_short(self, pass_s: float, saved: float, cost_s: float) -> str:
        """Return an explanation if the run is too short for a change to pay off, otherwise "".

        `pass_s` is the duration of a forward and backward pass. The change costs `cost_s` once, and saves at most the
        fraction `saved` of each pass.
        """
        run_s = pass_s * self._steps * self.job.training.accumulation
        if run_s * saved >= cost_s:
            return ""
        cost = _format_seconds(cost_s)
        return f"the run takes about {_format_seconds(run_s)}, too short to repay the {cost} that compiling takes"

    @property
    def _trial_failed(self) -> str:
        """Explanation of a choice that was made because the trial of the alternative failed."""
        return f"a trial of the alternative failed ({self._error or 'on another rank'})"

    def _measure_candidates(
        self, rehearsal: Rehearsal, *candidates: Callable[[], object], warm_up: int = WARM_UP
    ) -> list[float]:
        """Time forward and backward passes with each candidate. All ranks must call this together.

        Returns the seconds of a pass with each candidate: the median over the passes, averaged over all ranks. A
        candidate is a function that prepares the model for a pass. Its first `warm_up` passes don't count. If a pass
        fails on any rank, the result is [], and `_error` is the reason. Raises _TrialStopped if the run is stopped on
        any rank.
        """
        strategy = self._strategy
        self._error = ""
        # A barrier: all ranks measure at the same time, since they may share a processor.
        strategy.collectives.all_reduce_max((0,))
        seconds: list[list[float]] = [[] for _ in candidates]
        started = time.perf_counter()
        for number in range(1, warm_up + MAX_PASSES + 1):
            try:
                for arrange, measured in zip(candidates, seconds, strict=True):
                    if self._is_stopped():
                        break
                    arrange()
                    measured.append(rehearsal.time_pass())
            except Exception as error:  # a custom model may fail in any way; training reports it if it fails again
                self._error = _summarize_error(error)
            newest = [measured[-1] for measured in seconds if measured]
            is_clear = number > warm_up and max(newest) > CLEAR * min(newest)
            is_over = number >= warm_up + MIN_PASSES and time.perf_counter() - started > ENOUGH_S
            flags = [int(self._is_stopped()), int(bool(self._error)), int(is_clear or is_over)]
            any_is_stopped, any_failed, any_is_done = strategy.collectives.all_reduce_max(flags)
            if any_is_stopped:
                raise _TrialStopped
            if any_failed:
                return []
            if any_is_done:
                break
        medians = [statistics.median(measured[warm_up:]) for measured in seconds]
        total = strategy.collectives.all_reduce_sum(torch.tensor(medians, dtype=torch.float64))
        means: list[float] = (total / strategy.spec.world_size).tolist()
        return means

    def _explain_skipping_compiling(self) -> str:
        """Return the reason why compiling should not be tried, or "" if it should be tried."""
        job = self.job
        reasons = (
            (not self._objective.compiles, "in this task, each image takes a different path through the model"),
            (bool(varying_size_fields(job)), "it would have to be recompiled for every image size"),
            (job.unfreezes_backbone, "it would have to be recompiled when the backbone is unfrozen"),
            (self._strategy.device.type == "cpu", "on the CPU it takes about half a minute and gains almost nothing"),
            (job.parallel.activation_checkpointing, "activation checkpointing recomputes blocks in ways that can't be compiled"),
            (job.parallel.static_graph, "DDP's static graph can't be combined with it"),
            (job.parallel.sync_batchnorm, "SyncBatchNorm layers communicate with the other devices in the middle of the model"),
        )  # fmt: skip
        return next((reason for applies, reason in reasons if applies), "")

    def _require_compiling(self, rehearsal: Rehearsal, model: nn.Module) -> None:
        """Compile the model. Raises StrategyError if that fails on any rank."""
        if self._compile_and_time(rehearsal, model, "default") is None:
            raise StrategyError(
                f"The model can't be compiled: {self._error or 'it failed on another rank'}. Set Compile "
                "the model to off."
            )

    def _try_compiling(self, rehearsal: Rehearsal, model: nn.Module) -> None:
        """Compile the model and time it, and undo this unless it is faster by the fraction `FASTER`.

        If the run is too short to make up for the time that compiling takes, don't compile it at all.
        """
        job = self.job
        eager_s = self._time_current(rehearsal)
        if eager_s is None:
            self._choose("compile", "off", self._trial_failed)
            return
        refusal = self._explain_too_short(eager_s, COMPILING_SAVES, COMPILING_S)
        if refusal:
            self._choose("compile", "off", refusal)
            return
        modes = ["default"]
        if self._strategy.spec.world_size == 1 and job.training.accumulation == 1:
            # With CUDA graphs, all passes use the same memory, and the next one overwrites gradients.
            modes.append("reduce-overhead")
        compiled_s: dict[str, float] = {}  # by mode
        for mode in modes:
            pass_s = self._compile_and_time(rehearsal, model, mode)
            if pass_s is not None:
                compiled_s[mode] = pass_s
        best = min(compiled_s, key=compiled_s.__getitem__, default=None)
        if best is None or not _is_faster(eager_s, compiled_s[best]):
            undo_compiling(model)
            why = self._trial_failed if best is None else _explain_comparison("off", "on", eager_s, compiled_s[best])
            self._choose("compile", "off", why)
            return
        if best != modes[-1]:  # another mode was compiled last
            self._compile_and_time(rehearsal, model, best)  # from torch's cache
        graphs = " (with CUDA graphs)" if best == "reduce-overhead" else ""
        self._choose("compile", "on", _explain_comparison("off", "on" + graphs, eager_s, compiled_s[best]))

    def _compile_and_time(self, rehearsal: Rehearsal, model: nn.Module, mode: str) -> float | None:
        """Compile the model, and return the seconds of a pass, or None if compiling or a pass failed on any rank.

        The model remains compiled. On the CPU, this process also compiles in itself from then on.
        """
        # The processes in which torch.compile compiles otherwise might outlive this one.
        if self._strategy.device.type == "cpu":
            compile_in_this_process()
        model.compile(mode=mode)
        return self._time_current(rehearsal, warm_up=2)  # CUDA graphs are recorded in the second pass

    def _time_current(self, rehearsal: Rehearsal, *, warm_up: int = WARM_UP) -> float | None:
        """Return the seconds of a pass with the model as it is, or None if a pass failed on any rank."""
        pass_s = self._measure_candidates(rehearsal, lambda: None, warm_up=warm_up)
        return pass_s[0] if pass_s else None


def _is_depthwise(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1


def _set_memory_format(rehearsal: Rehearsal, model: nn.Module, memory_format: torch.memory_format) -> None:
    """Convert the model and the inputs of its rehearsal to a memory format."""
    model.to(memory_format=memory_format)
    rehearsal.inputs = rehearsal.inputs.to(memory_format=memory_format)


def can_reuse_choices(resumed_job: Mapping[str, Any], job: Job) -> bool:
    """Return True if `job` can reuse the automatic choices of the job that it resumes.

    That requires the same devices and the same settings that affect the speed. `resumed_job` has the fields of the
    resumed job.
    """
    return all(resumed_job.get(name) == job.value(name) for name in fields_with_trait("speed")) and (
        tuple(resumed_job.get("devices", ())) == job.parallel.devices
    )


def _is_faster(usual_s: float, other_s: float) -> bool:
    """Return True if `other_s` is less than `usual_s` by more than the fraction `FASTER`."""
    return other_s < usual_s * (1 - FASTER)


def _explain_comparison(usual: str, other: str, usual_s: float, other_s: float) -> str:
    """Return a clause with the seconds per pass of two values of a job field.

    `usual` and `other` are the values. The clause is the reason for the choice between them.
    """
    is_slightly_faster = other_s <= usual_s and not _is_faster(usual_s, other_s)
    note = ", too small a difference to change it" if is_slightly_faster else ""
    took = f"{_format_seconds(usual_s)} with {usual} and {_format_seconds(other_s)} with {other}"
    return f"in a trial a pass took {took}{note}"


def _format_seconds(seconds: float) -> str:
    if seconds >= 90:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _summarize_error(error: Exception) -> str:
    """Return the kind of an error and the beginning of its message."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
