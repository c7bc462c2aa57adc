"""States of a thread found in its stack: working, reading images, waiting for other ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from engine.data.loading.image_loader import BatchLoader
from engine.training.stack_probe import inspect_stack


@contextmanager
def thread_in(function: Callable[[threading.Event], object]) -> Iterator[int]:
    """Run a thread in `function` inside the context; the thread returns once its event is set."""
    end = threading.Event()
    thread = threading.Thread(target=function, args=(end,))
    thread.start()
    assert thread.ident is not None
    yield thread.ident
    end.set()
    thread.join()


def inspect_inside(thread: int, function: str) -> tuple[str, str]:
    """Return the result of `inspect_stack` once the thread has reached `function`."""
    while True:
        state, location = inspect_stack(thread)
        if location.startswith(f"{function} ("):
            return state, location


def test_inspect_stack_finds_working_thread() -> None:
    def forward(end: threading.Event) -> None:
        end.wait()

    with thread_in(forward) as thread:
        state, location = inspect_inside(thread, "forward")
    assert state == "working"
    assert location.startswith(f"forward ({Path(__file__).name}, line ")


def test_inspect_stack_finds_waiting_collective() -> None:
    def collective(end: threading.Event) -> None:
        # Compiled as a function of torch.distributed's, which blocks as one of its collectives does.
        location = Path(torch.__file__).parent / "distributed" / "distributed_c10d.py"
        names: dict[str, Callable[[threading.Event], None]] = {}
        exec(compile("def barrier(end): end.wait()", str(location), "exec"), names)
        names["barrier"](end)

    with thread_in(collective) as thread:
        assert inspect_inside(thread, "barrier")[0] == "waiting"


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

    with thread_in(step) as thread:
        assert inspect_inside(thread, "backward")[0] == "working"


def test_inspect_stack_finds_reading_thread() -> None:
    file = BatchLoader.__init__.__code__.co_filename

    def epoch(end: threading.Event) -> None:
        names: dict[str, Callable[[threading.Event], None]] = {}
        exec(compile("def take(end): end.wait()", file, "exec"), names)
        names["take"](end)

    with thread_in(epoch) as thread:
        assert inspect_inside(thread, "take")[0] == "reading"


def test_inspect_stack_of_ended_thread() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert thread.ident is not None
    assert inspect_stack(thread.ident) == ("", "")
