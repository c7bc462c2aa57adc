"""Whether what a job asks for about how the model computes (compiled, in which memory format, in how many threads) can be
had under its strategy and on its devices."""

from __future__ import annotations

import os
import shutil
import sys

from engine.contract.catalogue import Catalogue, StrategyEntry
from engine.contract.devices import CPU, is_gpu
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem


def cpp_compiler() -> str:
    """The C++ compiler that torch.compile calls for the CPU (torch._inductor.cpp_builder)."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def speed_problems(job: Job, strategy: StrategyEntry, catalogue: Catalogue) -> list[Problem]:
    """What stands against the job's `compile`, `memory_format` and `cpu_threads`."""
    found = []
    for name, value in (("compile", "on"), ("memory_format", "channels_last")):
        if getattr(job, name) == value and not strategy.keeps_model_whole:
            able = [entry.title for entry in catalogue.strategies if entry.keeps_model_whole]
            found.append(_without_effect(name, f"under {strategy.title}", f"choose {' or '.join(able)}"))
    if job.cpu_threads is not None and job.devices and all(map(is_gpu, job.devices)):
        found.append(_without_effect("cpu_threads", "on GPUs", "train on the CPU"))
    if job.compile == "on" and strategy.keeps_model_whole:
        found += _compiling(job, strategy)
    return found


def _without_effect(name: str, where: str, instead: str) -> Problem:
    field = FIELDS[name]
    back = "Leave it empty" if field.default is None else f"Set it to {field.default}"
    return Problem(name, f"{field.label} has no effect {where}.", f"{back}, or {instead}.", "warning")


def _compiling(job: Job, strategy: StrategyEntry) -> list[Problem]:
    found = []
    if CPU in job.devices and shutil.which(cpp_compiler()) is None:
        found.append(
            Problem(
                "compile",
                f"torch.compile needs a C++ compiler for the CPU, and there is no {cpp_compiler()} on the PATH.",
                "Install one (on Debian and Ubuntu: sudo apt install g++), or set it to auto.",
            )
        )
    if job.activation_checkpointing:
        found.append(
            Problem(
                "compile",
                "Activation checkpointing computes blocks again in ways that torch.compile cannot follow.",
                "Set it to auto, or switch activation checkpointing off.",
            )
        )
    if job.static_graph and "static_graph" in strategy.fields:
        found.append(
            Problem(
                "compile",
                "DDP cannot learn a static graph from a compiled model.",
                "Set it to auto, or switch Static graph off.",
            )
        )
    return found
