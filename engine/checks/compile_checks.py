"""Whether a job's model can be compiled under its strategy and on its devices."""

from __future__ import annotations

import os
import shutil
import sys

from engine.contract.catalogue import StrategyEntry
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.contract.problems import Problem


def cpp_compiler() -> str:
    """The C++ compiler that torch.compile calls for the CPU (torch._inductor.cpp_builder)."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def speed_problems(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """What stands against the job's `compile`."""
    if job.precision.compile != "on" or not strategy.keeps_model_whole:
        return []
    found = []
    if CPU in job.parallel.devices and shutil.which(cpp_compiler()) is None:
        found.append(
            Problem(
                "compile",
                f"torch.compile needs a C++ compiler for the CPU, and there is no {cpp_compiler()} on the PATH.",
                "Install one (on Debian and Ubuntu: sudo apt install g++), or set it to auto.",
            )
        )
    if job.parallel.activation_checkpointing:
        found.append(
            Problem(
                "compile",
                "torch.compile can't trace the recomputation of activation checkpointing.",
                "Set it to auto, or turn off activation checkpointing.",
            )
        )
    if job.parallel.static_graph and "static_graph" in strategy.fields:
        found.append(
            Problem(
                "compile",
                "DDP can't record a static graph of a compiled model.",
                "Set it to auto, or turn off Static graph.",
            )
        )
    return found
