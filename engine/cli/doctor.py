"""``footplate doctor``: describe this machine's hardware and software, and why something doesn't work."""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec

from engine.checks.machine_findings import (
    Finding,
    Grade,
    disk_findings,
    driver_findings,
    memory_findings,
    shared_memory_findings,
    training_findings,
)
from engine.checks.torch_support import find_installed_torch
from engine.cli import children
from engine.cli.gpus.remarks import list_remarks, number_gpus
from engine.cli.terminal import COMPLETED, FAILED, print_error, print_lines
from engine.contract.catalogue import Supplement, load_supplement, supplement_file
from engine.contract.devices import Snapshot
from engine.runs.export import ExportRefused, check_target, collect_problem_report, write_report
from engine.runs.plugins import refresh_supplement
from engine.system import paths
from engine.system.children import run_child
from engine.system.format import size
from engine.system.plugins import installed_versions
from engine.system.private_network import PrivateNetwork

PACKAGES = (
    "footplate", "torch", "torchvision", "PySide6-Essentials", "pyqtgraph", "nvidia-ml-py", "numpy", "pillow",
    "simplejpeg",
)  # fmt: skip
_PROBE_S = 120.0
_MARKS: dict[Grade, str] = {"fine": "ok  ", "limited": "note", "cpu_only": "BAD ", "broken": "BAD "}


def add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--report", metavar="FILE", type=Path, help="write a zip file for a bug report, without names and paths"
    )
    parser.set_defaults(command=doctor)


def doctor(options: argparse.Namespace) -> int:
    """Print the findings about hardware and software, or write a problem report that contains them.

    Returns 0 if training works. On a machine with a GPU, training must work on the GPU.
    """
    return diagnose() if options.report is None else _write_report(options.report)


def _write_report(file: Path) -> int:
    """Write a problem report to `file`, and print the names of its parts. Returns an exit code."""
    try:
        check_target(file)
        texts = collect_problem_report(capture_output())
        write_report(texts, file)
    except ExportRefused as refused:
        return print_error(str(refused))
    print_lines(f"Wrote {file}: {', '.join(texts)}.")
    print_lines("Names, paths and addresses are replaced in it. Check what it contains before you share it.")
    return COMPLETED


def capture_output() -> str:
    """Return the output of ``footplate doctor``."""
    text = io.StringIO()
    with redirect_stdout(text):
        diagnose()
    return text.getvalue()


def diagnose() -> int:
    """Print the findings about hardware and software. Returns 0 as `doctor` does."""
    grades: set[Grade] = set()
    for finding in _check_all():
        print_lines(f"{_MARKS[finding.grade]}  {finding}")
        grades.add(finding.grade)
    if "broken" in grades:
        print_lines("Training will not work; see BAD above.")
    elif "cpu_only" in grades:
        print_lines("Training works on the CPU only; see BAD above.")
    else:
        print_lines("Training works here.")
    return FAILED if grades & {"broken", "cpu_only"} else COMPLETED


def _check_all() -> Iterator[Finding]:
    """Yield all findings about hardware and software, in the printed order. Some take seconds."""
    yield _check_python()
    yield from _check_packages()
    yield from check_plugins()
    facts = _probe_pytorch()
    yield from check_pytorch(facts)
    yield from _check_devices(facts)
    yield _check_display()
    yield from check_folders()
    yield _check_loopback()
    yield from check_connections()
    yield _check_forking()


def _check_python() -> Finding:
    text = f"{platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores"
    return Finding("fine", "Python", text)


def _check_packages() -> Iterator[Finding]:
    versions = installed_versions(PACKAGES)
    for package in PACKAGES:
        if package in versions:
            yield Finding("fine", package, versions[package])
        else:
            yield Finding("limited", package, "is not installed; install Footplate again with pip")


def check_plugins() -> Iterator[Finding]:
    """Scan the installed plug-ins, and yield findings about their contents and about unusable ones.

    The scan also renews the catalogue's supplement.
    """
    file = supplement_file()
    if file is None:
        return
    try:
        refresh_supplement(force=True)
    except OSError as error:
        yield Finding("limited", "Plug-ins", f"can't be used, since {file} can't be written: {error.strerror}")
        return
    added = load_supplement() or Supplement()
    names = [task.id for task in added.tasks]
    names += [model.id for model in added.models]
    names += [strategy.id for strategy in added.strategies]
    names += added.formats
    names += dict.fromkeys(measure.id for measures in added.metrics.values() for measure in measures)
    if names:
        yield Finding("fine", "Plug-ins", ", ".join(names))
    yield from (Finding("limited", "Plug-ins", str(problem)) for problem in added.problems)


def _probe_pytorch() -> dict[str, Any]:
    """Load PyTorch in another process, and return facts about it. The key "error" explains why that failed."""
    try:
        command = [sys.executable, "-m", "engine.cli.probe"]
        result = run_child(command, timeout_s=_PROBE_S, cwd=str(paths.PACKAGES))
    except subprocess.TimeoutExpired:
        return {"error": f"PyTorch did not answer within {_PROBE_S:.0f} s; a GPU or its driver may be hung"}
    try:
        facts: dict[str, Any] = json.loads(result.stdout)
    except ValueError:
        lines = result.stderr.decode(errors="replace").strip().splitlines()
        return {"error": f"PyTorch crashed (exit code {result.returncode}). {lines[-1] if lines else ''}"}
    return facts


def check_pytorch(facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield findings about PyTorch, given the facts from its probe. The fact "sum" shows that it works on the CPU."""
    works_on_cpu = "sum" in facts
    if "error" in facts:
        yield Finding("limited" if works_on_cpu else "broken", "PyTorch", facts["error"])
    if works_on_cpu:
        yield Finding("fine", "PyTorch", "computes on the CPU")
    if facts.get("cuda"):
        names = ", ".join(facts["devices"])
        yield Finding("fine", "CUDA", f"{facts['built_for_cuda']} with {len(facts['devices'])} GPU(s): {names}")
    elif facts.get("built_for_cuda"):
        yield Finding("limited", "CUDA", "PyTorch finds no usable GPU; trainings run on the CPU")
    elif works_on_cpu:
        yield Finding("limited", "CUDA", "this PyTorch is built without CUDA; trainings run on the CPU")
    for name, use in (("gloo", "DDP and pipelines on CPU workers"), ("nccl", "DDP and pipelines on GPUs")):
        if name in facts and not facts[name]:
            yield Finding("limited", name, f"is missing from this PyTorch: no {use}")
    yield _check_weights(facts.get("weights_folder"))


def _check_weights(folder: str | None) -> Finding:
    """Return a finding that lists the cached pretrained weights.

    `folder` is torch's cache. If it is None or has no weights, the finding says that none are cached.
    """
    cached = sorted(Path(folder, "checkpoints").glob("*.pth")) if folder else []
    if not cached:
        return Finding("limited", "Pretrained weights", "none are cached; they are downloaded when first used")
    return Finding("fine", "Pretrained weights", f"cached: {', '.join(path.name for path in cached)}")


def _check_devices(facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield findings about the GPUs and the processor. `facts` are those from PyTorch's probe."""
    try:
        machine: Snapshot = children.read_snapshot()
    except children.ChildFailed as error:
        yield Finding("limited", "NVML", f"the sampler does not answer: {error}")
        return
    yield from check_gpus(machine)
    yield from check_training(machine, facts)
    yield from memory_findings(machine.cpu)


def check_gpus(machine: Snapshot) -> Iterator[Finding]:
    """Yield findings about NVML and each GPU."""
    yield from driver_findings(machine.nvml)
    numbers = number_gpus(machine.gpus)
    for gpu in machine.gpus:
        remarks = list_remarks(gpu)
        facts = f"{gpu.name}, {size(gpu.memory_total_bytes)}, {gpu.uuid}"
        text = "; ".join((facts, *(remark.text for remark in remarks)))
        is_alarming = any(remark.alarming for remark in remarks)
        yield Finding("limited" if is_alarming else "fine", f"GPU {numbers[gpu.uuid]}", text)
    if machine.foreign_pids and machine.gpus:
        text = "NVML reports the host's processes here, so the users of a GPU are unknown"
        yield Finding("limited", "Container", text)


def check_training(machine: Snapshot, facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield findings about training with PyTorch on the GPUs that NVML lists, with a remedy if it is not possible.

    `facts` are the result of `engine.cli.probe`. They show if PyTorch, once loaded, finds the GPUs that it should find.
    """
    is_cuda_unusable = "sum" in facts and not facts["cuda"]
    for finding in training_findings(machine, find_installed_torch(), os.environ):
        if finding.grade == "fine" and is_cuda_unusable:
            reason = facts.get("cuda_error") or "no reason given"
            text = f"PyTorch can't use the GPUs that NVML shows: {reason}"
            yield msgspec.structs.replace(finding, grade="cpu_only", text=text)
        else:
            yield finding


def _check_display() -> Finding:
    """Return a finding about whether a window can be opened."""
    if sys.platform in ("win32", "darwin"):
        return Finding("fine", "Display", "available")
    for name in ("WAYLAND_DISPLAY", "DISPLAY"):
        if os.environ.get(name):
            return Finding("fine", "Display", f"{name}={os.environ[name]}")
    return Finding("limited", "Display", "none, so no window; `footplate train` works without one")


def check_folders() -> Iterator[Finding]:
    """Yield findings about the folders for runs and sockets, and about shared memory."""
    yield from disk_findings()
    yield from shared_memory_findings()
    try:
        yield Finding("fine", "Sockets", f"in {paths.runtime_folder()}")
    except OSError as error:
        yield Finding("broken", "Sockets", f"{error}; set XDG_RUNTIME_DIR to a folder that only you can access")


def _check_loopback() -> Finding:
    """Return a finding about connections over loopback, which ranks use on one machine."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 2.0):
            return Finding("fine", "Loopback", "answers")
    except OSError as error:
        return Finding("limited", "Loopback", f"does not answer ({error}): no strategy with several processes")


def check_connections() -> Iterator[Finding]:
    """Yield a finding about the network connections between the ranks of a run, on Linux."""
    if sys.platform != "linux":
        return
    try:
        PrivateNetwork().close()
    except OSError as error:
        text = f"connect over loopback and refuse other users, since private networks can't be made ({error.strerror})"
        yield Finding("fine", "Ranks", text)
    else:
        yield Finding("fine", "Ranks", "connect in a private network, which other users can't reach")


def _check_forking() -> Finding:
    if sys.platform == "linux":
        return Finding("fine", "Start", "workers are forked from a process that has PyTorch loaded")
    return Finding("limited", "Start", "each worker imports PyTorch separately on this system, which takes seconds")
