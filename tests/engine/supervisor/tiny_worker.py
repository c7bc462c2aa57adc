"""A worker without torch, for what a real one cannot be made to do: the supervised process of these tests."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from engine.contract.events import AnyEvent, CheckpointSaved, EpochStarted, Failed, LogLine, StepMetrics
from engine.contract.protocol import ENCODE, Frames, Stop
from engine.contract.worker import TO_WORKER, Heartbeat, WorkerDone, WorkerSpec


class Tiny:
    """Does what the job's name says, `steps` times or until it is told to stop."""

    def __init__(self, spec: WorkerSpec, channel: socket.socket) -> None:
        self.spec = spec
        self.channel = channel
        self.frames = Frames()

    def say(self, message: AnyEvent | Heartbeat | WorkerDone) -> None:
        self.channel.sendall(ENCODE.encode(message) + b"\n")

    def told_to_stop(self, wait_s: float) -> bool:
        if not select.select([self.channel], [], [], wait_s)[0]:
            return False
        data = self.channel.recv(4096)
        return not data or any(isinstance(TO_WORKER.decode(line), Stop) for line in self.frames.feed(data))

    def train(self, steps: int, wait_s: float = 0.0) -> bool:
        for step in range(1, steps + 1):
            if self.told_to_stop(wait_s):
                return True
            if self.spec.rank == 0:
                self.say(step_metrics(step))
        return False


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


def run(spec: WorkerSpec, channel: socket.socket) -> int:  # noqa: PLR0912  (a case per behaviour)
    behaviour, _, number = spec.job.name.partition(" ")
    tiny = Tiny(spec, channel)
    print(f"rank {spec.rank} of {spec.world_size} begins")
    tiny.say(EpochStarted(epoch=1))
    stopped = False
    match behaviour:
        case "train":
            stopped = tiny.train(int(number))
        case "forever":
            stopped = tiny.train(10**9, 0.01)
        case "flood":
            for step in range(1, int(number) + 1):
                tiny.say(step_metrics(step))
                if step % 1000 == 0:
                    tiny.say(LogLine(text=f"after step {step}"))
            stopped = tiny.told_to_stop(600.0)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            tiny.say(LogLine(text="deaf"))
            time.sleep(600)
        case "exit" if spec.rank == spec.world_size - 1:
            print("the last words", file=sys.stderr, flush=True)
            os._exit(int(number))
        case "raise" if spec.rank == spec.world_size - 1:
            raise ValueError("a fault of mine")
        case "lost" if spec.rank == 0:
            # As a rank in a collective does when another one dies: it reports, and a moment before that one's end.
            tiny.say(Failed(cause="gloo: Connection closed by peer", rank=0))
            return 1
        case "lost":
            os.kill(os.getpid(), signal.SIGKILL)
        case "linger":
            tiny.say(WorkerDone(stopped=False, best={}, best_epoch=None))
            channel.close()
            time.sleep(600)
        case "child":
            child = subprocess.Popen(["sleep", "600"])
            tiny.say(LogLine(text=f"child {child.pid}"))
            os._exit(3)
        case "garbage":
            channel.sendall(b"what is this\n")
            time.sleep(600)
        case _:
            stopped = tiny.train(10**9, 0.01)
    if spec.rank == 0:
        Path(spec.run_folder, "checkpoints", "last.pt").write_bytes(b"weights")
        tiny.say(CheckpointSaved(kind="last", path="checkpoints/last.pt", epoch=1, step=1, bytes=7, seconds=0.0))
    tiny.say(WorkerDone(stopped=stopped, best={"top1": 0.5} if spec.rank == 0 else {}, best_epoch=1))
    return 0
