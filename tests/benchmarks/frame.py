"""Helpers that the benchmarks share: options, folders, preloaded processes, and the first line of output."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import select
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from engine.gpus.cpu import cpu_name
from engine.runs.launch import Preloader
from engine.supervisor.environment import usable_cores
from tests.support.machines import Machines, find_obstacle

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
DATASETS = SHARED / "datasets"
PACKAGES = ("torch", "torchvision", "pillow", "simplejpeg", "timm", "lightning", "PySide6_Essentials", "pyqtgraph")


def describe_environment() -> str:
    """Describe the hardware, load and package versions for the first line of output, without importing the packages."""
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{package} {version(package)}")
    machine = f"{cpu_name()}, {usable_cores()} cores, load {os.getloadavg()[0]:.1f}, {platform.platform()}"
    return f"{machine}; {', '.join(versions)}"


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Create a parser whose help shows the script's docstring with its line breaks."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


@contextlib.contextmanager
def use_empty_home() -> Iterator[Path]:
    """Use empty Footplate folders in this process and its children. Yield the temporary folder that contains them."""
    with tempfile.TemporaryDirectory(prefix="fp") as name:
        os.environ |= {"FOOTPLATE_HOME": f"{name}/home", "FOOTPLATE_CACHE": f"{name}/cache", "XDG_RUNTIME_DIR": name}
        yield Path(name)


@contextlib.contextmanager
def start_preloader() -> Iterator[Preloader]:
    """Start a process that imports PyTorch and can then start runs quickly, as the window does. Yield its controller."""
    started = Preloader()
    started.start()
    while not started.ready:
        select.select([started], [], [], 60.0)
        started.poll()
    yield started
    started.close()


@contextlib.contextmanager
def start_machines(*names: str) -> Iterator[Machines]:
    """Start simulated machines ("node1" and "node2" by default), and yield them.

    They are added to the hosts of the head, the machine on which commands run.
    """
    if why := find_obstacle():
        raise SystemExit(why)
    with tempfile.TemporaryDirectory(prefix="fpb") as name:
        started = Machines(Path(name), names or ("node1", "node2"))
        try:
            for host in started.names:
                started.footplate("hosts", "add", host, "--no-check")
            yield started
        finally:
            started.close()


def print_rates(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Print the rates (images per second) of each program in a comparison, and return their medians."""
    medians = {side: statistics.median(values) for side, values in rates.items()}
    for side, values in rates.items():
        print(f"{side}: {medians[side]:.1f} images/s ({', '.join(f'{value:.1f}' for value in values)})")
    return medians


def create_application() -> QApplication:
    """Create the Qt application with Footplate's theme, offscreen by default."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtWidgets import QApplication

    from gui.style import theme

    app = QApplication(["footplate"])
    theme.apply(app)
    return app
