"""Replacements for the data that commands read from this machine, its queue, its cache and its folders.

All numbers in them are different, so that no value can be mistaken for another one.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Generator
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from engine.checks.machine_findings import Finding
from engine.checks.torch_support import TorchBuild
from engine.cli import children, doctor, listing, train
from engine.contract.advice import Advice, Candidate
from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import (
    DatasetReport,
    Interpretation,
    MaskValue,
    Sample,
    SampleBox,
    SplitReport,
    UnreadableImage,
)
from engine.contract.devices import Ecc, GpuAffinity, GpuPair, RetiredMemory, SnapshotRequest, Topology
from engine.contract.events import Waiting
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.data.cache import cache_space
from engine.data.cache.cache_space import CachedSet, CacheInfo
from engine.runs import queue
from engine.runs.folder import RunFolder
from engine.runs.notes import change_notes
from engine.runs.queue import Ticket
from engine.system import paths
from tests.engine.cli.machines import GIB, NOON, busy_gpu, full_gpu, gpu, instance, machine, two_halves
from tests.gui.sources.written_runs import list_run_events, write, write_run

MIB = 1 << 20
DATASET = str(paths.sample_dataset())
REPAIRS = RetiredMemory(pages_single_bit=1, pages_pending=True, rows_corrected=2, rows_failed=True, rows_pending=True)
PARENT = full_gpu(2, mig_enabled=True, utilization_percent=None, processes=(), ecc=Ecc(uncorrected=2), retired=REPAIRS)
LINKS = two_halves()
MACHINE = machine(
    full_gpu(0, cuda_index=1),
    busy_gpu(
        1, cuda_index=0, name="NVIDIA B200", retired=RetiredMemory(rows_pending=True, rows_corrected=0), power_w=9.0
    ),
    PARENT,
    instance(PARENT, 3, memory_used_bytes=GIB, memory_total_bytes=18 * GIB),
    gpu(3, asleep=True),
    busy_gpu(4, lost=True, lost_since=NOON - 90, utilization_percent=7.0),
    topology=Topology(
        (
            GpuPair(one=0, other=1, path="NODE", nvlinks=12, peer_access=True),
            *LINKS.pairs[1:-1],
            GpuPair(one=2, other=3, path="PIX"),
        ),
        (*LINKS.affinities[:-1], GpuAffinity(index=3, cores="")),
    ),
    foreign_pids=True,
)
ADVICE = Advice(
    table=tuple(
        Candidate(name="DDP", strategy="ddp", devices=("cpu", "cpu"), changes=each, low=8.0, high=9.0)
        for each in ({"strategy": "ddp", "accumulation": 2}, {})
    ),
    fits=True, sentence="So it is.", considered=7, ended_by="settled", confidence=0.95, took_s=4.0,
    measured_at=datetime(2024, 1, 1, 12, 30).timestamp(), hardware=("CPU",), versions={},
)  # fmt: skip
FACTS = {
    "torch": "2.15.0", "built_for_cuda": "13.2", "cuda": True, "devices": ["H200", "B200"], "nccl": False, "gloo": True,
    "sum": 2.0,
}  # fmt: skip
BOXES = tuple(SampleBox("ash", 1.5, 2.0, 30.0 + n, 40.25) for n in range(6))
READ = DatasetReport(
    folder="/data/trees", format="coco", kind="boxes", title="COCO", certain=False, classes=("ash", "birch"), channels=1,
    evidence=("instances.json", "2 folders"),
    splits=(SplitReport("train", {"ash": 1200, "birch": 34}, objects={"ash": 5600, "birch": 78}, total=1230),
            SplitReport("val", {"ash": 5, "birch": 6}, is_drawn=True)),
    unreadable=tuple(UnreadableImage(f"{n}.png", f"reason {n}") for n in range(6)), unreadable_count=7,
    mask_values=tuple(MaskValue(str(n), 0.03125 * n, 40 + n, f"class {n}" if n else None) for n in range(26)),
    samples=(
        Sample("a.png", "train", label="ash"), Sample("b.png", "train", labels=("ash", "birch")), Sample("c", "val", labels=()),
        Sample("d.png", "train", boxes=BOXES), Sample("e.png", "val", boxes=()), Sample("e2.png", "val", boxes=BOXES[:1]), Sample("f.png", "val", problem="It is torn."),
        Sample("g.png", "val", pixels={"ash": 600, "": 200, "birch": 100, "c": 50, "d": 30, "e": 20}),
    ),
    problems=(Problem("dataset", "One class is rare.", "Add images.", severity="warning"),),
)  # fmt: skip
UNCLEAR = DatasetReport(
    folder="/data/mixed", format="",
    readings=(Interpretation("imagefolder", "classification", "class folders", ("2 folders",), ("Their names are roles.",)),
              Interpretation("masks", "segmentation", "masks", ("equal names", "equal sizes"))),
    problems=(Problem("format", "The evidence conflicts.", "Choose a format."),),
)  # fmt: skip


def use_machine(patch: pytest.MonkeyPatch) -> None:
    def snapshot_lines(
        *, once: bool = False, interval_s: float = 1.0, request: SnapshotRequest | None = None
    ) -> Generator[bytes]:
        yield msgspec.json.encode(MACHINE) + b"\n"

    patch.setattr(children, "read_snapshot_lines", snapshot_lines)


def replace_machine_facts(patch: pytest.MonkeyPatch) -> None:
    """Replace everything that `footplate doctor` reads from this machine by constants."""
    use_machine(patch)
    patch.setenv("DISPLAY", ":7")
    patch.setenv("WAYLAND_DISPLAY", "")
    patch.setattr(platform, "python_version", lambda: "3.13.9")
    patch.setattr(platform, "platform", lambda: "Linux-6.8")
    patch.setattr(os, "cpu_count", lambda: 96)
    versions = {package: f"{number}.{number + 1}" for number, package in enumerate(doctor.PACKAGES) if number != 4}
    patch.setattr(doctor, "installed_versions", lambda _packages: versions)
    patch.setattr(doctor, "find_installed_torch", lambda: TorchBuild("2.15.0+cu132", "13.2", ("sm_90", "sm_100")))
    probed = subprocess.CompletedProcess([], 0, json.dumps(FACTS).encode(), b"")
    patch.setattr(doctor, "run_child", lambda *_arguments, **_options: probed)
    patch.setattr(doctor, "disk_findings", lambda: [Finding("limited", "Disk", "3.0 GiB free.", "Free some.")])
    patch.setattr(doctor, "shared_memory_findings", lambda: [Finding("broken", "Shared memory", "none")])
    patch.setattr(doctor, "check_connections", lambda: [])


def use_queue(patch: pytest.MonkeyPatch) -> None:
    runs = [write_run(8, None, name=name) for name in ("first", "second", "third")]
    change_notes(runs[1].path, name="renamed")
    write(runs[2].events_file, [Waiting(position=2, behind=(), others=("ada uses 12.0 GiB of GPU 0",))])
    tickets = [
        Ticket(
            run_id=run.run_id, folder=str(run.path), pid=1, start_time=1.0, devices=("GPU-1a2b3c4d-and-so-on", "cpu")[:n],
            since=NOON - 3723 * n, position=n, held=n == 2, behind=tuple(other.run_id for other in runs[:n]),
        )
        for n, run in enumerate(runs[1:], 1)
    ]  # fmt: skip
    patch.setattr(queue, "list_waiting", lambda: tickets)


def use_cache(patch: pytest.MonkeyPatch) -> None:
    sets = [
        CachedSet(
            Path(f"/cache/{n}"), CacheInfo(f"/data/{n}", 64 * n, (1, 3)[n % 2]), 5 * GIB, n * 900 * MIB, NOON - 90 * n
        )
        for n in (1, 2)
    ]
    patch.setattr(cache_space, "list_sets", lambda: sets)
    patch.setattr(cache_space, "limit_bytes", lambda: 20 * GIB)
    patch.setattr("engine.data.cache.cached_images.count_filled_rows", lambda folder: 1234 * int(folder.name))


def use_recipes(_patch: pytest.MonkeyPatch) -> None:
    folder = paths.home() / "recipes"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('title = "My own"\nabout = "Short."\n[set]\nepochs = 3\nmixup = 0.3\n')
    (folder / "torn.toml").write_text('title = "Torn"\nabout = "No."\nepoch = 3\n')


def use_catalogue(patch: pytest.MonkeyPatch) -> None:
    """Replace the catalogue by one with only a few models."""
    complete = load_catalogue()
    chosen = ("resnet18", "mnist_cnn", "fasterrcnn", "unet")
    models = tuple(model for model in complete.models if model.id in chosen)
    few = msgspec.structs.replace(
        complete, models=models, encoders=(), encoder_weights={}, timm_tags={}, timm_weights={}
    )
    patch.setattr(listing, "load_catalogue", lambda: few)


def use_report(patch: pytest.MonkeyPatch, report: DatasetReport = READ) -> None:
    patch.setattr(children, "inspect", lambda _job, _on_progress, samples: report)


def use_run(patch: pytest.MonkeyPatch) -> None:
    write_run(8, name="trees")
    patch.setattr(doctor, "capture_output", lambda: "ok    Python")


def finish_runs(patch: pytest.MonkeyPatch) -> None:
    """Replace supervisors by a function that completes each run at once."""

    def start_supervisor(run: RunFolder) -> int:
        write(run.events_file, list_run_events(run.job() or Job(), 8, "completed"))
        return 1

    use_report(patch)
    use_machine(patch)
    patch.setattr(train, "start_supervisor", start_supervisor)


Prepare = Callable[[pytest.MonkeyPatch], object]
COMMANDS: dict[str, tuple[Prepare, tuple[str, ...]]] = {
    "gpus at 80 columns": (use_machine, ("gpus",)),
    "gpus with details at 200 columns": (use_machine, ("gpus", "--details")),
    "gpus as CSV": (use_machine, ("gpus", "--csv")),
    "doctor": (replace_machine_facts, ("doctor",)),
    "queue": (use_queue, ("queue",)),
    "queue as JSON": (use_queue, ("queue", "--json")),
    "cache": (use_cache, ("cache",)),
    "cache as JSON": (use_cache, ("cache", "--json")),
    "recipes": (use_recipes, ("recipes",)),
    "recipes as JSON": (use_recipes, ("recipes", "--json")),
    "recipe": (use_recipes, ("recipes", "show", "mine")),
    "catalogue": (use_catalogue, ("catalogue",)),
    "inspect": (use_report, ("inspect", "/data/trees", "--task", "detection")),
    "inspect as JSON": (use_report, ("inspect", "/data/trees", "--task", "detection", "--json")),
    "inspect mixed": (lambda patch: use_report(patch, UNCLEAR), ("inspect", "/data/mixed")),
    "inspect mixed as JSON": (lambda patch: use_report(patch, UNCLEAR), ("inspect", "/data/mixed", "--json")),
    "export": (use_run, ("export", "trees", "--zip", "report.zip", "--folder", "report")),
    "export by default": (use_run, ("export", "trees")),
    "train": (finish_runs, ("train", DATASET, "--model", "mnist_cnn", "--devices", "cpu,cpu")),
    "train detached": (finish_runs, ("train", DATASET, "--detach")),
    "submit": (
        finish_runs,
        ("submit", DATASET, "--print", "--model", "mnist_cnn", "--partition", "long", "--time", "8:00:00", "--nodes", "3",
         "--account", "me", "--gpus-per-node", "2", "--cpus-per-task", "5", "--setup", "module load cuda"),
    ),
}  # fmt: skip
"""Function that prepares the machine, and arguments, for each tested command."""
