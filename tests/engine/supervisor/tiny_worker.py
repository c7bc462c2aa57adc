"""Worker without torch that can misbehave in many ways."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    EpochStarted,
    Failed,
    FailureKind,
    LogLine,
    Planned,
    StepMetrics,
    Validation,
    Warned,
)
from engine.contract.protocol import ENCODE, Adjust, CheckpointNow, Frames, Pause, Stop
from engine.contract.worker import TO_WORKER, Heartbeat, WorkerDone, WorkerSpec
from engine.runs.folder import RunFolder


class Tiny:
    """Worker for tests of the supervisor. The name of the job selects its behavior."""

    def __init__(self, spec: WorkerSpec, channel: socket.socket) -> None:
        self.spec = spec
        self.channel = channel
        self.frames = Frames()

    def send(self, message: AnyEvent | Heartbeat | WorkerDone) -> None:
        self.channel.sendall(ENCODE.encode(message) + b"\n")

    def stop_requested(self, wait_s: float) -> bool:
        if not select.select([self.channel], [], [], wait_s)[0]:
            return False
        data = self.channel.recv(4096)
        return not data or any(isinstance(TO_WORKER.decode(line), Stop | Pause) for line in self.frames.feed(data))

    def echo(self) -> bool:
        """Report the name of each command until Stop or Pause, and return True then.

        Adjust kills the worker. CheckpointNow sends a warning.
        """
        while True:
            for line in self.frames.feed(self.channel.recv(4096)):
                command = TO_WORKER.decode(line)
                self.send(LogLine(text=type(command).__name__))
                match command:
                    case Adjust():
                        os.kill(os.getpid(), signal.SIGKILL)
                    case CheckpointNow():
                        self.send(Warned(code="unsaved", message="The disk is full."))
                    case Stop() | Pause():
                        return True

    def train(self, steps: int, wait_s: float = 0.0) -> bool:
        for step in range(1, steps + 1):
            if self.stop_requested(wait_s):
                return True
            if self.spec.rank == 0:
                self.send(step_metrics(step))
        return False

    @property
    def attempt(self) -> int:
        """Number of times that the worker of the last rank has started, according to its log."""
        log = RunFolder(self.spec.run_folder).worker_log(self.spec.world_size - 1)
        return log.read_text().count("begins") if log.exists() else 0

    def learn(self, epochs: int) -> None:
        """Report epochs of ten steps, in which the loss falls by 10% from step to step."""
        done = epochs * (self.attempt - 1)
        self.send(
            Planned(
                epochs=epochs, from_step=10 * done, steps_per_epoch=10, train_images=320, val_images=100,
                classes=("a", "b"), image_size=28, parameters=1, trainable_parameters=1,
            )
        )  # fmt: skip
        for epoch in range(done + 1, done + epochs + 1):
            loss = 0.9**epoch
            self.send(msgspec.structs.replace(step_metrics(10 * epoch), epoch=epoch, loss=loss))
            measures = {"top1": 1 - loss / 2, "loss": loss}
            self.send(Validation(epoch=epoch, step=10 * epoch, measures=measures, images=100, seconds=0.1))

    def save(self, step: int) -> None:
        Path(self.spec.run_folder, "checkpoints", "last.pt").write_bytes(b"weights")
        self.send(CheckpointSaved(kind="last", path="checkpoints/last.pt", epoch=1, step=step, bytes=7, seconds=0.0))

    def fail(self, kind: FailureKind, step: int) -> int:
        """Report a failure as a real worker does, and return the exit code."""
        self.send(Failed(cause=f"a failure of the kind {kind}", rank=self.spec.rank, step=step, kind=kind))
        return 1


def step_metrics(step: int) -> StepMetrics:
    return StepMetrics(
        epoch=1,
        step=step,
        loss=1.0 / step,
        learning_rate=0.1,
        images_per_second=1.0,
        data_wait_s=0.0,
        compute_s=0.0,
    )


def run(spec: WorkerSpec, channel: socket.socket) -> int:  # noqa: PLR0912  (a case per behavior)
    behavior, _, number = spec.job.name.partition(" ")
    tiny = Tiny(spec, channel)
    checkpoint = Path(spec.job.checkpoints.resume_from).name or "nothing"
    print(f"rank {spec.rank} of {spec.world_size} begins from {checkpoint}, past step {spec.skip_to}", flush=True)
    tiny.send(EpochStarted(epoch=1))
    stopped = False
    match behavior:
        case "train" | "unsaved":
            stopped = tiny.train(int(number))
        case "forever":
            stopped = tiny.train(10**9, 0.01)
        case "echo":
            tiny.send(LogLine(text=f"{spec.job.data.loader_workers} loader workers"))
            stopped = tiny.echo()
        case "flood":
            for step in range(1, int(number) + 1):
                tiny.send(step_metrics(step))
                if step % 1000 == 0:
                    tiny.send(LogLine(text=f"after step {step}"))
            stopped = tiny.stop_requested(600.0)
        case "learn":
            tiny.learn(int(number))
        case "learn_and_wait":
            tiny.learn(int(number))
            stopped = tiny.stop_requested(600.0)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            tiny.send(LogLine(text="deaf"))
            time.sleep(600)
        case "exit" if spec.rank == spec.world_size - 1:
            print("the last words", file=sys.stderr, flush=True)
            os._exit(int(number))
        case "raise" if spec.rank == spec.world_size - 1:
            raise ValueError("a fault of mine")
        case "lost" if spec.rank == 0:
            # Like a rank in a collective when another rank dies: report a failure shortly before the other one ends.
            tiny.send(Failed(cause="gloo: Connection closed by peer", rank=0))
            return 1
        case "lost":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die":
            while tiny.attempt <= int(number) and not stopped:
                if spec.rank == spec.world_size - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                stopped = tiny.train(1, 0.01)
            stopped = stopped or tiny.train(20, 0.005)
        case "save_and_die" | "save_the_same_and_die" if tiny.attempt <= int(number):
            tiny.save(tiny.attempt if behavior == "save_and_die" else 1)
            os.kill(os.getpid(), signal.SIGKILL)
        case "memory" if (spec.job.parallel.microbatches or spec.job.training.accumulation) < int(number):
            return tiny.fail("out_of_memory", 1)
        case "not_finite" if tiny.attempt <= int(number):
            return tiny.fail("not_finite", 7 * tiny.attempt)
        case "mistake":
            return tiny.fail("error", 1)
        case "save_and_die" | "memory" | "not_finite":
            stopped = tiny.train(20, 0.005)
        case "linger":
            tiny.send(WorkerDone(stopped=False, best={}, best_epoch=None))
            channel.close()
            time.sleep(600)
        case "child":
            child = subprocess.Popen(["sleep", "600"])
            tiny.send(LogLine(text=f"child {child.pid}"))
            os._exit(3)
        case "garbage":
            channel.sendall(b"what is this\n")
            time.sleep(600)
        case _:
            stopped = tiny.train(10**9, 0.01)
    if spec.rank == 0:
        tiny.save(1)
    unsaved = "The disk is full." if behavior == "unsaved" and spec.rank else ""
    best = {"top1": 0.5} if spec.rank == 0 else {}
    tiny.send(WorkerDone(stopped=stopped, unsaved=unsaved, best=best, best_epoch=1))
    return 0
