"""Functions that workers call before training, to observe or change internals.

The argument `prepare` of `WorkerGroup` selects one of them. They read their parameters from the worker's environment,
and write results to the run folder, where `read_record` reads them.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from engine.contract.devices import is_gpu
from engine.contract.worker import WorkerSpec
from engine.strategies import base, rank_times
from engine.training import worker
from engine.training.autotune import Autotuner
from engine.training.oom_retry import ResilientStep
from engine.training.trainer import Trainer

ENGINE = Path(__file__).resolve().parents[2] / "engine"
FIRST = 2
"""First step whose waits for the GPU are counted. Earlier steps wait because they initialize something."""

Step = Callable[[ResilientStep, Any, int], Any]


def read_record(folder: Path, rank: int = 0) -> Any:
    """Read what one of the hooks in this module recorded in the worker of `rank`."""
    return json.loads((folder / f"seen-{rank}.json").read_text())


_write_lock = threading.Lock()


def _write_record(spec: WorkerSpec, content: Any) -> None:
    with _write_lock:  # replicas run in several threads
        Path(spec.run_folder, f"seen-{spec.rank}.json").write_text(json.dumps(content))


def _wrap_each_step(wrap: Callable[[Step], Step]) -> None:
    ResilientStep.step = wrap(ResilientStep.step)  # type: ignore[method-assign]


# Waiting for the device


def record_waits(spec: WorkerSpec) -> None:
    """Record how often each line of code waits for the GPU, from step `FIRST` on: {line: count}.

    The count comes from torch.cuda.set_sync_debug_mode, which warns at each operation that waits.
    """
    places: Counter[str] = Counter()
    _write_record(spec, places)
    if not is_gpu(spec.devices[0]):
        return
    adjust, train = Trainer._set_loader_threads, Trainer._train_epoch

    def note(message: Warning | str, *_: Any, **__: Any) -> None:
        if "synchronizing CUDA operation" in str(message):
            places[_find_caller()] += 1
            _write_record(spec, places)

    def watched(self: Trainer) -> None:
        if self.step >= FIRST - 1:
            torch.cuda.set_sync_debug_mode("warn")
        adjust(self)

    def trained(self: Trainer, epoch: int, done: int) -> tuple[int, bool]:
        try:
            return train(self, epoch, done)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    warnings.simplefilter("always")
    warnings.showwarning = note
    Trainer._set_loader_threads, Trainer._train_epoch = watched, trained  # type: ignore[method-assign]


DETECTORS = (
    "object detection, SSDlite", "object detection, Faster R-CNN", "object detection, D-FINE", "object detection, RF-DETR",
    "instance segmentation",
)  # fmt: skip
OF_DETECTORS = ("engine/models/torchvision_detectors.py", "engine/optim/optimizer_step.py")
"""Files in which torchvision's detectors wait for the number of boxes."""


def is_caused_by_library(place: str, task: str) -> bool:
    """Return True if a library causes the waits in a line of code that `record_waits` has recorded.

    `task` is the key of the trained task in `jobs.TASKS`.
    """
    return not place.startswith("engine/") or (task in DETECTORS and place.startswith(OF_DETECTORS))


def _find_caller() -> str:
    """Return the innermost stack frame outside torch, as "FILE LINE FUNCTION", or "elsewhere" if there is none.

    FILE begins with "engine/", or with the name of the package. Only frames of Footplate's engine and of installed
    packages are considered.
    """
    for frame in reversed(traceback.extract_stack()):
        where = f"{frame.lineno} {frame.name}"
        if Path(frame.filename).is_relative_to(ENGINE):
            return f"engine/{Path(frame.filename).relative_to(ENGINE).as_posix()} {where}"
        _, packages, inside = frame.filename.rpartition("-packages/")
        if packages and not inside.startswith("torch/"):
            return f"{inside} {where}"
    return "elsewhere"


# Several ranks and replicas on one card


def use_one_gpu(spec: WorkerSpec) -> None:
    """Make all ranks run on the first GPU, and DataParallel create all its replicas on it.

    The ranks communicate over gloo, because NCCL needs a GPU per rank.
    """
    if not is_gpu(spec.devices[0]):
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = spec.devices[0]
    init_group, replicate = dist.init_process_group, nn.DataParallel.__init__

    def over_gloo(_: str, **named: Any) -> None:
        init_group("gloo", **named | {"device_id": None})

    def on_the_card(self: nn.DataParallel[Any], module: nn.Module, device_ids: list[int], **named: Any) -> None:
        replicate(self, module, [0] * len(device_ids), **named)

    base.worker_device = lambda _: torch.device("cuda", 0)
    dist.init_process_group = over_gloo
    nn.DataParallel.__init__ = on_the_card  # type: ignore[method-assign,assignment]


def use_one_gpu_over_nccl(spec: WorkerSpec) -> None:
    """Make all ranks run on the first GPU and communicate over NCCL.

    NCCL doesn't permit two ranks of a host on the same GPU, so each rank pretends to be another host (NCCL_HOSTID).
    NCCL may use only two channels, so that multiprocessors remain free for the other ranks.
    """
    if not is_gpu(spec.devices[0]):
        return
    os.environ |= {
        "CUDA_VISIBLE_DEVICES": spec.devices[0], "NCCL_HOSTID": f"rank{spec.rank}", "NCCL_NET": "Socket",
        "NCCL_IB_DISABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0", "NCCL_CUMEM_ENABLE": "0",
        "NCCL_MAX_NCHANNELS": "2", "NCCL_MAX_P2P_NCHANNELS": "2", "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN"),
    }  # fmt: skip
    base.worker_device = lambda _: torch.device("cuda", 0)


def run_on_one_gpu(spec: WorkerSpec, channel: socket.socket) -> int:
    """Run a worker with all ranks on one GPU, and return its exit code."""
    use_one_gpu(spec)
    return worker.run(spec, channel)


def record_dtypes(spec: WorkerSpec) -> None:
    """Record the device and dtype of each linear layer's output: {"DEVICE DTYPE": count}."""
    dtypes: Counter[str] = Counter()
    forward = nn.Linear.forward

    def noting(self: nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
        outputs = forward(self, inputs)
        dtypes[f"{outputs.device} {outputs.dtype}"] += 1
        _write_record(spec, dtypes)
        return outputs

    nn.Linear.forward = noting  # type: ignore[method-assign]


def record_dtypes_on_one_gpu(spec: WorkerSpec) -> None:
    use_one_gpu(spec)
    record_dtypes(spec)


# Launches of a step

STEPS, MODE = "PROOF_STEPS", "PROOF_COMPILE_MODE"


def record_launches(spec: WorkerSpec) -> None:
    """Record the launches in some steps, as a list of dicts from `_count_launches`.

    The environment variable `STEPS` lists the numbers of these steps. If the variable `MODE` is set, the model is
    compiled with this mode of torch.compile.
    """
    selected = {int(number) for number in os.environ[STEPS].split(",")}
    found: list[dict[str, int]] = []
    on_gpu = is_gpu(spec.devices[0])
    activities = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if on_gpu else [])]

    def wrap(step: Step) -> Step:
        def profiled(self: ResilientStep, batch: Any, number: int) -> Any:
            if number not in selected:
                return step(self, batch, number)
            with torch.profiler.profile(activities=activities) as profile:
                result = step(self, batch, number)
                if on_gpu:
                    torch.cuda.synchronize()
            found.append(_count_launches(profile))
            _write_record(spec, found)
            return result

        return profiled

    _wrap_each_step(wrap)
    if mode := os.environ.get(MODE):

        def compile_it(self: Autotuner, rehearsal: Any, model: nn.Module) -> None:
            if not self._compile_and_time(rehearsal, model, mode):
                raise RuntimeError(f"it cannot be compiled: {self._error}")
            self._choose("compile", "on", "the check asks for it")

        Autotuner._explain_skipping_compiling = lambda _: ""  # type: ignore[method-assign]
        Autotuner._try_compiling = compile_it  # type: ignore[method-assign]


def _count_launches(profile: torch.profiler.profile) -> dict[str, int]:
    """Count the launches in a profile.

    Keys are "regions" (compiled regions of torch.compile), "kernels" (all GPU kernels), "fused" (those of Triton among
    them) and "graphs" (CUDA graphs).
    """
    events = [event for event in profile.events() or () if not event.is_user_annotation]
    kernels = [event.name for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
    calls = [event.name for event in events if event.device_type == torch.autograd.DeviceType.CPU]
    return {
        "regions": sum(name.startswith("Torch-Compiled Region") for name in calls),
        "kernels": sum(not name.startswith(("Memcpy", "Memset")) for name in kernels),
        "fused": sum(name.startswith("triton_") for name in kernels),
        "graphs": sum(name.startswith("cudaGraphLaunch") for name in calls),
    }


# Cost of single operations


def enable_benchmark_mode(spec: WorkerSpec) -> None:
    """Enable cuDNN's benchmark mode, which searches for the fastest convolutions."""
    torch.backends.cudnn.benchmark = True


def record_timer_cost(spec: WorkerSpec) -> None:
    """Record how long starting and stopping the step timer takes: [{"start": seconds, "stop": seconds}, …]."""
    costs: list[dict[str, float]] = []
    timer: Any = rank_times.KernelTimer if is_gpu(spec.devices[0]) else rank_times.HostTimer
    start, stop = timer.start, timer.stop

    def timed_start(self: Any) -> None:
        started = _now(spec)
        start(self)
        costs.append({"start": time.perf_counter() - started})

    def timed_stop(self: Any) -> Any:
        started = _now(spec)
        spent = stop(self)
        costs[-1]["stop"] = time.perf_counter() - started
        _write_record(spec, costs)
        return spent

    timer.start, timer.stop = timed_start, timed_stop


def _now(spec: WorkerSpec) -> float:
    if is_gpu(spec.devices[0]):
        torch.cuda.synchronize()
    return time.perf_counter()
