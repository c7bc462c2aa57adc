"""Activity of a thread according to its stack: working, reading images, or waiting for other ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torchvision

from engine.training import trainer
from engine.training.stack_probe import inspect_stack


@contextmanager
def run_in_thread(function: Callable[[threading.Event], object]) -> Iterator[int]:
    """Run `function` in a thread during the block, and yield the thread's id.

    `function` gets an event, which is set at the end of the block to make it return.
    """
    end = threading.Event()
    thread = threading.Thread(target=function, args=(end,))
    thread.start()
    assert thread.ident is not None
    yield thread.ident
    end.set()
    thread.join()


def inspect_inside(thread: int, function: str) -> tuple[str, str]:
    """Wait until the thread has reached `function`, and return its activity and location from `inspect_stack`."""
    while True:
        state, location = inspect_stack(thread)
        if location.startswith(f"{function} ("):
            return state, location


def test_inspect_stack_finds_working_thread() -> None:
    def forward(end: threading.Event) -> None:
        end.wait()

    with run_in_thread(forward) as thread:
        state, location = inspect_inside(thread, "forward")
    assert state == "working"
    assert location.startswith(f"forward ({Path(__file__).name}, line ")


def make_blocking_function(file: Path, function: str) -> Callable[[threading.Event], None]:
    """Return a function that blocks until an event is set. Its stack frame is in the function `function` of `file`."""
    names: dict[str, Callable[[threading.Event], None]] = {}
    exec(compile(f"def {function}(end): end.wait()", str(file), "exec"), names)
    return names[function]


TORCH, VISION = Path(torch.__file__).parent, Path(torchvision.__file__).parent
ENGINE = Path(trainer.__file__).parents[1]


@pytest.mark.parametrize(
    ("file", "function", "on_cpu", "on_gpu"),
    [
        (TORCH / "distributed/distributed_c10d.py", "barrier", "waiting", "waiting"),
        (TORCH / "nn/modules/_functions.py", "forward", "working", "waiting"),  # SyncBatchNorm
        (VISION / "models/detection/rpn.py", "filter_proposals", "working", "waiting"),
        (ENGINE / "models/model_surgery.py", "forward", "working", "waiting"),
        (ENGINE / "tasks/detection/task.py", "update", "working", "waiting"),
        (ENGINE / "tasks/detection/task.py", "compute", "working", "working"),
        (ENGINE / "training/trainer.py", "step", "waiting", "waiting"),
        (ENGINE / "training/checkpointing/checkpointer.py", "wait", "working", "working"),
        (ENGINE / "data/loading/image_loader.py", "take", "reading", "reading"),
        (Path("/home/user/model.py"), "forward", "working", "working"),
    ],
)
def test_inspect_stack_distinguishes_waiting_and_working(
    monkeypatch: pytest.MonkeyPatch, file: Path, function: str, on_cpu: str, on_gpu: str
) -> None:
    for is_gpu, state in ((False, on_cpu), (True, on_gpu)):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda is_gpu=is_gpu: is_gpu)
        with run_in_thread(make_blocking_function(file, function)) as thread:
            assert inspect_inside(thread, function)[0] == state


def test_inspect_stack_in_backward_pass() -> None:
    class Slow(torch.autograd.Function):
        end: threading.Event

        @staticmethod
        def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
            return value * 1

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            Slow.end.wait()
            return gradient

    def step(end: threading.Event) -> None:
        Slow.end = end
        Slow.apply(torch.ones(2, requires_grad=True)).sum().backward()

    with run_in_thread(step) as thread:
        assert inspect_inside(thread, "backward")[0] == "working"


def test_inspect_stack_of_ended_thread() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert thread.ident is not None
    assert inspect_stack(thread.ident) == ("", "")
