"""What a job leaves to Footplate of how it computes, decided at the start of its workers, where need be by short
trials. A trial makes a few passes each way, in turns, on the device that trains, with the batch, the precision and
the model of the run (`Rehearsal`), of which nothing stays behind. All ranks try at once and add up what they
measured, so that all come to the same. What was decided is in the checkpoints, so that a run that goes on from one
computes as the run before it did, to the bit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from msgspec import structs
from torch import nn

from engine.contract.events import Chosen
from engine.contract.job import Job, deciding
from engine.strategies.base import Strategy, StrategyError, settled_precision
from engine.strategies.single import SingleDevice
from engine.strategies.speed import Rehearsal
from engine.system.format import counted
from engine.tasks.base import Objective
from engine.torch_compat import compile_in_this_process, is_compiled, undo_compiling

SHARE = 0.04
"""The share of a run's steps whose time trials may take."""
WARM_UP, LEAST, MOST = 1, 2, 7
"""Passes each way that do not count, that do at least, and that do at most, where they are over within `ENOUGH_S`."""
ENOUGH_S = 0.25
CLEAR = 3.0
"""An alternative this many times slower than another is not tried again, such as threads competing on a busy
machine."""
FASTER = 0.05
"""An alternative must be faster by more than this share to be chosen, since measurements vary by as much."""
COMPILING_S = 60.0
"""The assumed cost of compiling a model and trying it: 20 to 35 s were measured on a CPU, and a GPU has two modes to
try."""
HOPED = 0.3
"""The share of a step's time that compiling may save: in training on an A100 its authors measured 43 % more speed as
the mean of 163 models (Ansel et al. 2024, PyTorch 2)."""
DEPTHWISE_S = 20.0
"""The assumed cost of trying depthwise convolutions with channels last, which cuDNN compiles for every shape: 16 and
19 s were measured for MobileNetV3 in bf16 on an H100 (cuDNN 9.19)."""
DEPTHWISE_SAVED = 0.6
"""The share of a step's time that this may save; measured there, at batch 256."""

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class Autotuner:
    """Decides for one run of `steps` steps. Every rank makes the same calls: `decide` before `Strategy.wrap`, then
    `compile` after it. Rank 0 tells what was chosen where there was a choice. `job` has what is decided so far.
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
    ) -> None:
        self._strategy = strategy
        self._objective = objective
        self._example_shape = example_shape
        self._steps = steps
        self._passes = int(SHARE * steps)
        self._emit = emit
        self._error = ""

    def decide(self, job: Job, model: nn.Module, before: Mapping[str, Any]) -> Job:
        """`job` with precision, threads and memory format decided for the plain `model`, in training mode.

        `before` are the fields of the job that this one goes on from, {} where there is none.
        """
        self.job, strategy = job, self._strategy
        if self.job.precision == "auto":
            self._settle_precision()
        if len(self._example_shape) != 3 and self.job.memory_format != "contiguous":
            self._decide(
                "memory_format",
                "contiguous",
                "only images can have their channels last, and these samples are not images",
            )
        alike = computes_alike(before, self.job)
        if not strategy.entry.keeps_model_whole:
            cuts = tuple(before["cuts"]) if alike and not self.job.cuts else self.job.cuts
            self.job = structs.replace(self.job, memory_format="contiguous", compile="off", cuts=cuts)
            return self.job
        if alike:
            self._take_over(before)
        if self.job.memory_format == "auto":
            with Rehearsal(
                strategy, self.job, model.to(strategy.device), self._objective, self._example_shape
            ) as rehearsal:
                self._settle_memory_format(rehearsal, model)
        return self.job

    def compile(self) -> None:
        """Decides whether the model that the strategy has wrapped is compiled, and compiles it if so.

        Raises StrategyError where the job wants it and it fails.
        """
        strategy = self._strategy
        wanted = self.job.compile
        if wanted == "off":
            return
        assert isinstance(strategy, SingleDevice)
        refusal = self._against_compiling() if wanted == "auto" else ""
        if refusal:
            self._decide("compile", "off", refusal)
            return
        rehearsal = Rehearsal(strategy, self.job, strategy.model, self._objective, self._example_shape)
        rehearsal.forward = strategy.forward
        with rehearsal, strategy.no_sync():
            if wanted == "on":
                self._compile_as_asked(rehearsal, strategy.model)
            else:
                self._try_compiling(rehearsal, strategy.model)
        if is_compiled(strategy.model):
            # Other shapes, and validations, are not worth being compiled.
            torch.compiler.set_stance("eager_on_recompile")

    def _decide(self, field: str, choice: Any, why: str) -> None:
        self.job = structs.replace(self.job, **{field: choice})
        if self._strategy.spec.rank == 0:
            self._emit(Chosen(field=field, choice=str(choice), why=why))

    def _settle_precision(self) -> None:
        precision = settled_precision(self.job)
        if precision == "bf16":
            why = "the GPUs support bf16 natively, and it needs no loss scaling"
        elif self._strategy.device.type == "cuda":
            why = "not all of the GPUs support bf16 natively"
        else:
            why = "bf16 is chosen only on GPUs that support it natively"
        self._decide("precision", precision, why)

    def _take_over(self, before: Mapping[str, Any]) -> None:
        job = self.job
        if job.memory_format == "auto" and before.get("memory_format") in FORMATS:
            self._decide("memory_format", before["memory_format"], "the resumed run used it")
        if job.compile == "auto" and before.get("compile") in ("on", "off"):
            self._decide("compile", before["compile"], "the resumed run used this setting")

    def _settle_memory_format(self, rehearsal: Rehearsal, model: nn.Module) -> None:
        """Keeps the images contiguous unless the model is faster, and runs at all, with its channels last."""
        refusal = self._against_channels_last(rehearsal, model)
        if refusal:
            self._decide("memory_format", "contiguous", refusal)
            return
        choice = "contiguous"
        taken = self._compare(rehearsal, *(partial(_lay_out, rehearsal, model, lie) for lie in FORMATS.values()))
        if taken and _is_faster(*taken):
            choice = "channels_last"
        why = _compared("contiguous", "channels_last", *taken) if taken else self._failed
        self._decide("memory_format", choice, why)
        _lay_out(rehearsal, model, FORMATS[choice])

    def _against_channels_last(self, rehearsal: Rehearsal, model: nn.Module) -> str:
        """Why it is not worth a trial, or ""."""
        if not any(parameter.dim() == 4 for parameter in model.parameters()):
            return "the model has no convolutions that would benefit"
        if not self._can_afford():
            return self._too_short
        if self._strategy.device.type == "cuda" and any(map(_is_depthwise, model.modules())):
            usual = self._compare(rehearsal, _as_it_is)
            return self._cannot_repay(usual[0], DEPTHWISE_SAVED, DEPTHWISE_S) if usual else self._failed
        return ""

    def _cannot_repay(self, pass_s: float, saved: float, cost_s: float) -> str:
        """Why the run is too short for what takes `cost_s` and saves that share of its passes, or ""."""
        rest_s = pass_s * self._steps * self.job.accumulation
        if rest_s * saved >= cost_s:
            return ""
        return f"the run takes about {_shown(rest_s)}, too short to repay the {_shown(cost_s)} that compiling takes"

    @property
    def _too_short(self) -> str:
        return f"a run of {counted(self._steps, 'step')} is too short for a trial to pay off"

    @property
    def _failed(self) -> str:
        return f"a trial of the alternative failed ({self._error or 'on another rank'})"

    def _can_afford(self) -> bool:
        """Whether a comparison of two ways fits into what is left for trials."""
        return self._passes >= 2 * (WARM_UP + LEAST)

    def _compare(self, rehearsal: Rehearsal, *ways: Callable[[], object], warm_up: int = WARM_UP) -> list[float]:
        """The median seconds of a pass in each of the `ways`, the ranks' mean; [] where a pass failed on any rank."""
        strategy = self._strategy
        self._passes -= len(ways) * (WARM_UP + LEAST)
        self._error = ""
        strategy.collectives.all_reduce_max((0,))  # all try at once, since they may share a processor
        seconds: list[list[float]] = [[] for _ in ways]
        begun = time.perf_counter()
        for number in range(1, warm_up + MOST + 1):
            try:
                for arrange, taken in zip(ways, seconds, strict=True):
                    arrange()
                    taken.append(rehearsal.seconds())
            except Exception as error:  # the model may be anybody's; if it fails in training, too, it is told of there
                self._error = _first_line(error)
            last = [taken[-1] for taken in seconds if taken]
            clear = number > warm_up and max(last) > CLEAR * min(last)
            enough = number >= warm_up + LEAST and time.perf_counter() - begun > ENOUGH_S
            failed, enough = map(
                bool, strategy.collectives.all_reduce_max([int(bool(self._error)), int(clear or enough)])
            )
            if failed:
                return []
            if enough:
                break
        medians = [statistics.median(taken[warm_up:]) for taken in seconds]
        total = strategy.collectives.all_reduce_sum(torch.tensor(medians, dtype=torch.float64))
        means: list[float] = (total / strategy.spec.world_size).tolist()
        return means

    def _against_compiling(self) -> str:
        """Why a job that leaves it open is not compiled whatever a trial may say, or ""."""
        job = self.job
        reasons = (
            (not self._objective.compiles, "in this task, each image takes a different path through the model"),
            (job.progressive_from is not None, "it would have to be recompiled for every image size"),
            (job.unfreezes, "it would have to be recompiled when the backbone is unfrozen"),
            (
                self._strategy.device.type == "cpu",
                "on the CPU it takes about half a minute and gains almost nothing",
            ),
            (
                job.activation_checkpointing,
                "activation checkpointing recomputes blocks in ways that can't be compiled",
            ),
            (job.static_graph, "DDP's static graph can't be combined with it"),
            (job.sync_batchnorm, "SyncBatchNorm layers communicate with the other devices in the middle of the model"),
        )
        return next((reason for applies, reason in reasons if applies), "")

    def _compile_as_asked(self, rehearsal: Rehearsal, model: nn.Module) -> None:
        if not self._compiled(rehearsal, model, "default"):
            raise StrategyError(
                f"The model can't be compiled: {self._error or 'it failed on another rank'}. Set Compile "
                "the model to off."
            )

    def _try_compiling(self, rehearsal: Rehearsal, model: nn.Module) -> None:
        """Compiles the model where the run is long enough to repay it, and keeps it so where it turns out faster."""
        job = self.job
        eager = self._compare(rehearsal, _as_it_is)
        if not eager:
            self._decide("compile", "off", self._failed)
            return
        refusal = self._cannot_repay(eager[0], HOPED, COMPILING_S)
        if refusal:
            self._decide("compile", "off", refusal)
            return
        modes = ["default"]
        if self._strategy.spec.world_size == 1 and job.accumulation == 1:
            # CUDA graphs give each pass the same memory, so that gradients must not be kept for a second one.
            modes.append("reduce-overhead")
        found = {mode: taken[0] for mode in modes if (taken := self._compiled(rehearsal, model, mode))}
        best = min(found, key=found.__getitem__, default=None)
        if best is None or not _is_faster(eager[0], found[best]):
            undo_compiling(model)
            why = _compared("off", "on", eager[0], found[best]) if best is not None else self._failed
            self._decide("compile", "off", why)
            return
        if best != modes[-1]:
            self._compiled(rehearsal, model, best)  # from what torch has kept of it
        graphs = " (with CUDA graphs)" if best == "reduce-overhead" else ""
        self._decide("compile", "on", _compared("off", "on" + graphs, eager[0], found[best]))

    def _compiled(self, rehearsal: Rehearsal, model: nn.Module, mode: str) -> list[float]:
        """Compiles the model and warms it up; [the seconds of a pass then], [] where that failed on any rank."""
        if self._strategy.device.type == "cpu":
            compile_in_this_process()
        model.compile(mode=mode)
        return self._compare(rehearsal, _as_it_is, warm_up=2)  # CUDA graphs are recorded in the second pass


def _as_it_is() -> None:
    pass


def _is_depthwise(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1


def _lay_out(rehearsal: Rehearsal, model: nn.Module, lie: torch.memory_format) -> None:
    model.to(memory_format=lie)
    rehearsal.inputs = rehearsal.inputs.to(memory_format=lie)


def computes_alike(before: Mapping[str, Any], job: Any) -> bool:
    """Whether the choices of a job hold for another, which goes on from it."""
    return all(before.get(name) == getattr(job, name) for name in deciding("speed")) and (
        tuple(before.get("devices", ())) == job.devices
    )


def _is_faster(usual_s: float, other_s: float) -> bool:
    return other_s < usual_s * (1 - FASTER)


def _compared(usual: str, other: str, usual_s: float, other_s: float) -> str:
    close = "" if _is_faster(usual_s, other_s) or other_s > usual_s else ", too small a difference to change it"
    return f"in a trial a pass took {_shown(usual_s)} with {usual} and {_shown(other_s)} with {other}{close}"


def _shown(seconds: float) -> str:
    if seconds >= 90:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
