"""Footplate as an installed package: a wheel is built and installed outside of the source tree."""

from __future__ import annotations

import json
import site
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WINDOW = """
import sys
from PySide6.QtCore import QTimer
from gui import app, main_window
import engine, resources
add_pages = main_window.MainWindow.add_pages
def add_pages_and_close(window):
    add_pages(window)
    print(engine.__file__, resources.__file__, window.form.rows["dataset"].value(), flush=True)
    QTimer.singleShot(0, window.close)
main_window.MainWindow.add_pages = add_pages_and_close
sys.exit(app.main())
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a virtual environment, install the wheel in it, and return its folder.

    Dependencies come from the current environment. Checks that the wheel contains exactly the files of the packages in
    Git.
    """
    if find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    run(ROOT, sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (wheel,) = folder.glob("*.whl")
    if (ROOT / ".git").exists():
        tracked = run(ROOT, "git", "ls-files", "footplate.py", "gui", "engine", "resources").splitlines()
        packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
        assert packed == set(tracked)
    done = folder / "venv"
    run(folder, sys.executable, "-m", "venv", str(done))
    python = str(done / "bin/python")
    run(folder, python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    (packages,) = done.glob("lib/python*/site-packages")
    # .pth files in these folders have no effect. One of them may lead to the source tree.
    (packages / "zz_shared.pth").write_text("\n".join(path for path in list_package_folders() if Path(path).is_dir()))
    return done


def list_package_folders() -> list[str]:
    """Return the folders in which the packages of the current Python are installed."""
    return [path for path in (*site.getsitepackages(), *sys.path) if "site-packages" in path]


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_installed_wheel_trains_the_sample(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("PYTHONPATH", raising=False)  # may lead to the source tree
    footplate = str(environment / "bin/footplate")
    engine, resources, sample = run(tmp_path, str(environment / "bin/python"), "-c", WINDOW).split()
    for path in (engine, resources, sample):
        assert Path(path).is_relative_to(environment)
    output = run(tmp_path, footplate, "train", sample, "--model", "mnist_cnn", "--epochs", "1", "--json")
    events = [json.loads(line) for line in output.splitlines()]
    assert (events[-1]["type"], events[-1]["outcome"]) == ("run_finished", "completed")
    assert run(tmp_path, footplate, "--version").startswith("footplate 0")
    run(tmp_path, footplate, "desktop", "install")
    assert f'Exec="{footplate}" %f' in (tmp_path / "data/applications/footplate.desktop").read_text()
