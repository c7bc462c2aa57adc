"""Hooks that change time limits in the workers of a test."""

from __future__ import annotations

import math
from typing import Any

from engine.contract.worker import WorkerSpec
from engine.training import autotune, sample_processes
from engine.training.callbacks import step_metrics, step_profile
from engine.training.checkpointing import checkpointer
from engine.training.sample_processes import SampleProcesses


def give_up_at_once(_spec: WorkerSpec) -> None:
    """Make the worker give up at once if the disk is full when it saves the last checkpoint."""
    checkpointer.RETRY_COMPLETED_S = checkpointer.RETRY_STOPPED_S = 0.0


def assume_slow_comparison(_spec: WorkerSpec) -> None:
    """Make the worker assume that comparing implementations of depthwise convolutions takes an hour.

    No run of the tests is long enough for such a comparison.
    """
    autotune.DEPTHWISE_S = 3600.0


def never_report_for_time(_spec: WorkerSpec) -> None:
    """Make the worker ignore the time since its last report when it decides whether to report a step.

    It still reports steps for other reasons, such as the end of an epoch.
    """
    step_metrics.REPORT_S = math.inf


def report_times_at_the_end(_spec: WorkerSpec) -> None:
    """Make the worker report step times only once, at the end of the run."""
    step_profile.EMIT_S = 3600.0


def load_samples_in_processes(_spec: WorkerSpec) -> None:
    """Make the worker load samples of user-defined dataset classes in child processes, even if they load quickly."""
    sample_processes.SLOW_S = sample_processes.WORTHWHILE_S = 0.0
    sample_processes.MEASURED_S = 0.0  # only the first sample, since a later one may kill its process
    sample_processes.BLOCKED = -math.inf
    start = SampleProcesses.__init__

    def start_and_wait(processes: SampleProcesses, *arguments: Any) -> None:
        start(processes, *arguments)
        assert processes.wait(60)

    SampleProcesses.__init__ = start_and_wait  # type: ignore[method-assign, assignment]
