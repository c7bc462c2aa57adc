"""Hooks that change time limits in the workers of a test."""

from __future__ import annotations

from engine.contract.worker import WorkerSpec
from engine.training import autotune
from engine.training.callbacks import step_profile
from engine.training.checkpointing import checkpointer


def give_up_at_once(_spec: WorkerSpec) -> None:
    """Don't retry saving the last checkpoint if the disk is full."""
    checkpointer.RETRY_COMPLETED_S = checkpointer.RETRY_STOPPED_S = 0.0


def compile_for_an_hour(_spec: WorkerSpec) -> None:
    """Make the worker assume that comparing implementations of depthwise convolutions takes an hour.

    This is more than it may take in a run of any length in the tests.
    """
    autotune.DEPTHWISE_S = 3600.0


def report_times_at_the_end(_spec: WorkerSpec) -> None:
    """Report step times only once, at the end of the run."""
    step_profile.EMIT_S = 3600.0
