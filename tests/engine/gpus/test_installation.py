"""Reasons that are reported if NVML doesn't work, such as containers without GPUs and inaccessible device files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from engine.contract.devices import Nvml, NvmlReading
from engine.gpus import sentences
from tests.engine.gpus.conftest import ROOT
from tests.support.nvml_stub import DRIVER_NOT_LOADED, NO_PERMISSION, NvmlStub, make_gpu_profile

READER = """
import os, sys
from pathlib import Path
import pynvml
from engine.gpus import reader
from engine.gpus.nvml import driver_files
driver_files.has_foreign_pids = lambda: False
root = Path(sys.argv[3])
driver_files.KERNEL_DRIVER, driver_files.DEVICES = root / "driver", root / "dev"
driver_files.CONTAINER_FILES = (root / "container",)
if len(sys.argv) > 4:
    os.setuid(int(sys.argv[4]))
reader.main()
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """Create a world-readable folder that replaces /, with files of the driver and of containers."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "dev").mkdir()
        yield root


def read_first_state(root: Path, libraries: Path, profile: Path | None = None, *user: str) -> Nvml:
    """Start a process that reads NVML, and return the state of NVML in its first reading.

    Args:
        root: Folder that replaces / for the process.
        libraries: Folder in which the process finds NVIDIA's libraries.
        profile: Profile for the NVML stub.
        user: Additional arguments of the process, which make it change its user.
    """
    environment = os.environ | {"LD_LIBRARY_PATH": str(libraries), "FOOTPLATE_NVML_PROFILE": str(profile)}
    with subprocess.Popen(
        [sys.executable, "-c", READER, "60", "60", str(root), *user],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    return msgspec.json.decode(line, type=NvmlReading).nvml


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ((), sentences.NO_LIBRARY),
        (("container",), sentences.NO_LIBRARY_IN_CONTAINER),
        (("driver",), sentences.LIBRARY_MISSING),
        (("dev/nvidia0",), sentences.LIBRARY_MISSING),
        (("driver", "container"), sentences.NO_GPUS_IN_CONTAINER),
    ],
)
def test_missing_library_message_depends_on_container(
    root: Path, tmp_path: Path, marks: tuple[str, ...], expected: str
) -> None:
    for mark in marks:
        (root / mark).touch()
    (tmp_path / "libnvidia-ml.so.1").write_text("this is no library, and hides any that is installed\n" * 10)
    assert read_first_state(root, tmp_path) == Nvml("no_library", expected)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ((), sentences.NO_DRIVER),
        (("container",), sentences.NO_DRIVER),
        (("driver", "container"), sentences.NO_GPUS_IN_CONTAINER),
    ],
)
def test_unreachable_driver_in_a_container(
    root: Path, nvml_stub: NvmlStub, marks: tuple[str, ...], expected: str
) -> None:
    for mark in marks:
        (root / mark).touch()
    nvml_stub.write(init=DRIVER_NOT_LOADED)
    assert read_first_state(root, nvml_stub.folder, nvml_stub.profile) == Nvml("no_driver", expected)


def test_denied_device_files_are_named(root: Path, compiled_stub: NvmlStub) -> None:
    for name, mode in (
        ("nvidia0", 0o666),
        ("nvidia1", 0o600),
        ("nvidia-uvm", 0),
        ("nvidiactl", 0o444),
        ("nvidia-caps", 0),
    ):
        (root / "dev" / name).touch()
        (root / "dev" / name).chmod(mode)
    root_user = os.getuid() == 0  # root can open every file, so the test runs as nobody
    user = ["65534"] if root_user else []
    denied = ["nvidia-uvm", *(["nvidia1"] if root_user else []), "nvidiactl"]
    files = tuple(str(root / "dev" / name) for name in denied)
    libraries = root / "libraries"
    shutil.copytree(compiled_stub.folder, libraries, ignore=shutil.ignore_patterns("profile*"))
    libraries.chmod(0o755)
    stub = NvmlStub(libraries, root / "profile")
    stub.write([make_gpu_profile(0)])
    nvml = read_first_state(root, libraries, stub.profile, *user)
    assert (nvml.status, nvml.denied_files) == ("ok", files)
    stub.write([make_gpu_profile(0)], init=NO_PERMISSION)
    nvml = read_first_state(root, libraries, stub.profile, *user)
    assert (nvml.status, nvml.message) == ("no_permission", sentences.explain_missing_permission(files))
    assert all(file in nvml.message for file in files)
