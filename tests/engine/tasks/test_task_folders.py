"""Independence of tasks. Deleting a folder of `engine.tasks` must remove its task everywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.contract.catalogue import load_builtin_catalogue
from engine.data.formats.declarations import task_declarations
from tests.support.images import write_image

ROOT = Path(__file__).parents[3]
FOLDERS = {
    "edges": ("edge_detection", {"edges"}),
    "roads": ("road_extraction", set()),
    "points": ("point_segmentation", {"points"}),
}
"""Id of the task in each folder, and the formats and kinds of annotations that no other task has."""
DAILY = "edges"

WRITE = """
import sys
from engine import catalogue
from engine.contract.catalogue import load_builtin_catalogue
if sys.argv[1] == "reuse":  # describing all models takes a minute and a half
    known = load_builtin_catalogue()
    catalogue.describe = lambda task, name: known.model(name)
catalogue.main(["--write"])
"""
SURVEY = """
import json, sys
from engine.checks.job_checks import problems
from engine.contract.catalogue import load_catalogue
from engine.contract.job import FIELDS, Job
from engine.contract.recipes import load_recipes
from engine.data.formats.registry import FORMATS, KINDS, detect_kind, recognize
from gui.form.field_factory import list_choices
assert "torch" not in sys.modules
catalogue = load_catalogue()
print(json.dumps({
    "tasks": [task.id for task in catalogue.tasks],
    "models": sorted({model.task for model in catalogue.models}),
    "choices": [value for value, *_ in list_choices(FIELDS["task"], catalogue)],
    "formats": list(FORMATS),
    "kinds": list(KINDS),
    "detected": detect_kind(sys.argv[1]),
    "recognized": recognize(sys.argv[1], val_fraction=0.2, seed=0).format,
    "unknown": [each.field for each in problems(Job.from_fields(task=sys.argv[2]), catalogue) if each.field == "task"],
    "known": [each.field for each in problems(Job(), catalogue) if each.field == "task"],
    "recipes": [str(each) for each in load_recipes().broken],
}))
"""


def _run(tree: Path, script: str, *arguments: str) -> str:
    """Run a script with the packages in `tree` and return its output."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "QT_QPA_PLATFORM": "offscreen"}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _find_mentions(tree: Path, names: list[str]) -> list[str]:
    """Return the source files in `tree` that contain one of the words `names`."""
    files = [path for package in ("engine", "gui") for path in (tree / package).rglob("*.py")]
    return [str(path.relative_to(tree)) for path in files if any(name in path.read_text() for name in names)]


@pytest.mark.parametrize(
    "folder", [name if name == DAILY else pytest.param(name, marks=pytest.mark.long) for name in FOLDERS]
)
def test_deleted_folder_removes_task(folder: str, tmp_path: Path) -> None:
    task, kinds = FOLDERS[folder]
    for package in ("engine", "gui", "resources"):
        shutil.copytree(ROOT / package, tmp_path / package)
    shutil.rmtree(tmp_path / "engine" / "tasks" / folder)
    assert not _find_mentions(tmp_path, [task, f"engine.tasks.{folder}"])
    images = tmp_path / "dataset"
    for number in range(8):
        write_image(images / ("cat", "dog")[number % 2] / f"{number}.png")
    _run(tmp_path, WRITE, "reuse" if folder == DAILY else "describe")
    found: dict[str, Any] = json.loads(_run(tmp_path, SURVEY, str(images), task))
    expected = [each.id for each in load_builtin_catalogue().tasks if each.id != task]
    assert found["tasks"] == found["choices"] == expected
    assert task not in found["models"]
    assert kinds.isdisjoint({*found["formats"], *found["kinds"]})
    assert found["detected"] == "classes"
    assert found["recognized"] == "imagefolder"
    assert (found["unknown"], found["known"], found["recipes"]) == (["task"], [], [])


def test_declarations_name_tasks_once() -> None:
    entries = [each.entry for each in task_declarations()]
    assert tuple(entries) == load_builtin_catalogue().tasks
    assert {task for task, _ in FOLDERS.values()} < {entry.id for entry in entries}
