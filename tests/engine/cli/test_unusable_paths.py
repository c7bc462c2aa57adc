"""Unusable paths on the command line: exit code 2, the path, the argument that names it, and a remedy."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.hosts import Host, put_host
from tests.engine.cli.terminal import run_in_this_process
from tests.support.nobody import find_files_as_nobody
from tests.support.trained_runs import TrainedRun
from tests.support.worker_group import Forker

pytestmark = pytest.mark.usefixtures("cached_children", "inference_in_this_process")

FOLDERS = {
    "train PATH": "DATASET",
    "inspect PATH": "",
    "advise PATH": "DATASET",
    "find-split-points PATH": "DATASET",
    "find-lr PATH": "DATASET",
    "find-batch PATH": "DATASET",
    "search --vary learning_rate=0.1,0.2 --dataset PATH": "DATASET",
    "torchrun PATH": "DATASET",
    "submit --print PATH": "DATASET",
    "hosts check . --dataset PATH": "--dataset",
    "evaluate RUN PATH": "DATASET",
    "explain PATH image.png": "",
}
"""Command lines that read a folder, and the names that messages have for it."""
FILES = {
    "train IMAGES --job PATH": "--job",
    "train IMAGES --weights-file PATH": "--weights-file",
    "train IMAGES --resume-from PATH": "--resume-from",
    "train IMAGES --model PATH.py": "--model",
    "train IMAGES --recipe PATH.toml": "--recipe",
    "search PATH.toml": "search",
    "recipes show PATH.toml": "",
    "submit --print IMAGES --script PATH": "--script",
    "hosts add this --no-check --yes --install PATH/footplate-1.whl": "",
}
"""Command lines that read a file, and the names that messages have for it."""
EITHER = {"explain RUN PATH": "paths", "predict RUN PATH": "paths"}
OUTPUTS = {
    "explain RUN IMAGES --out PATH/out": "out",
    "predict RUN IMAGES --out PATH/out": "out",
    "convert RUN --out PATH/out": "out",
    "handover RUN --out PATH/out.zip": "out",
    "doctor --report PATH/out.zip": "",
    "advise IMAGES --save PATH/job.toml": "--save",
    "evaluate RUN --csv PATH/metrics.csv": "--csv",
    "review RUN --csv PATH/samples.csv": "--csv",
}
"""Command lines that write a file or folder in a folder, and the names that messages have for it."""


def run_invalid(line: str, path: Path, trained: Callable[[str], TrainedRun], tmp_path: Path, name: str) -> str:
    """Run the command `line` with an unusable path, check its exit code and messages, and return its output.

    Args:
        line: Command line in which PATH, RUN and IMAGES stand for paths, as in `FILES`.
        path: Unusable path. A message must contain it and a remedy.
        trained: Fixture that provides the run and its dataset.
        tmp_path: Folder for output.
        name: Argument or flag that the message must name, or "".
    """
    of = trained("classification")
    put_host(Host(name=""))
    replacements = {"RUN": str(of.run.path), "IMAGES": of.job.data.dataset}
    given = [replacements.get(argument, argument.replace("PATH", str(path))) for argument in line.split()]
    answer = run_in_this_process(
        *given, *(("--out", str(tmp_path / "out")) if "RUN PATH" in line and name == "paths" else ())
    )
    text = answer.out + answer.err
    assert answer.code == 2, text
    assert "Errno" not in text
    assert "CannotLoad" not in text
    message = next(each for each in text.splitlines() if str(path) in each)
    if name:
        assert f"{name}: " in message
    assert re.search(r"\.\s+[A-Z`]", text[text.index(message) + message.index(str(path)) :]), text  # a remedy follows
    return text


@pytest.mark.parametrize("line", FOLDERS | FILES | EITHER)
def test_missing_path_is_named(line: str, trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    run_invalid(line, tmp_path / "missing", trained, tmp_path, (FOLDERS | FILES | EITHER)[line])


@pytest.mark.parametrize("line", FOLDERS)
def test_file_instead_of_folder_is_named(line: str, trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    run_invalid(line, tmp_path / "file", trained, tmp_path, FOLDERS[line])


@pytest.mark.parametrize("line", FILES)
def test_folder_instead_of_file_is_named(line: str, trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    for name in ("folder", "folder.py", "folder.toml"):
        (tmp_path / name).mkdir()
    run_invalid(line, tmp_path / "folder", trained, tmp_path, FILES[line])


@pytest.mark.parametrize("line", FOLDERS | FILES | EITHER)
def test_unreadable_file_is_named(line: str, trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    """Use FIFOs, which not even root can read as files. A test that hangs has opened one."""
    for name in ("fifo", "fifo.py", "fifo.toml"):
        os.mkfifo(tmp_path / name)
    run_invalid(line, tmp_path / "fifo", trained, tmp_path, (FOLDERS | FILES | EITHER)[line])


@pytest.mark.parametrize("line", OUTPUTS)
def test_output_inside_a_file_is_refused(line: str, trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert "permission" not in run_invalid(line, tmp_path / "file", trained, tmp_path, OUTPUTS[line])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another user")
def test_folder_without_permission_is_named(forker: Forker) -> None:
    with tempfile.TemporaryDirectory() as locked:  # other users may enter its parent folder, unlike that of `tmp_path`
        problems, is_no_run = forker.call(find_files_as_nobody, [locked], {})
    assert problems == [["paths", f"{locked} can't be read: Permission denied."]]
    assert is_no_run
