"""Registries. They must load plug-ins of installed packages on demand, and skip broken ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.contract.catalogue import Measure
from engine.data.formats import registry as formats
from engine.metrics import registry as metrics
from engine.models.base import Model
from engine.models.registry import MODELS
from engine.strategies import STRATEGIES, Strategy
from engine.system.plugins import Registry, UnusablePluginError, fingerprint, installed_versions, plugin_packages
from engine.tasks.base import Task
from engine.tasks.registry import TASKS
from tests.support import images
from tests.support.installed import install

GROUP = "footplate.models"


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a folder on the module path for packages that a test installs."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    fingerprint.cache_clear()
    yield folder
    fingerprint.cache_clear()
    for name in set(sys.modules) - before:
        del sys.modules[name]


def texts() -> Registry[str]:
    def accept(name: str, loaded: object) -> str:
        if not isinstance(loaded, str):
            raise UnusablePluginError(f"it is a {type(loaded).__name__}, not a text")
        return loaded

    return Registry("footplate.models", {"own": "Footplate's"}, accept, taken=lambda: ("taken",))


def test_no_plugins_means_no_fingerprint() -> None:
    registry = texts()
    assert fingerprint() == ""
    assert dict(registry) == {"own": "Footplate's"}
    assert (registry.load_plugins(), registry.packages, "other" in registry) == ({}, {}, False)


def test_installed_versions_leaves_out_missing_packages() -> None:
    assert installed_versions(["no-such-package", "pytest"]) == {"pytest": pytest.__version__}


def test_plugins_are_imported_on_demand(site: Path) -> None:
    install(site, "trees", {GROUP: {"ash": "trees_ash:TEXT", "oak": "trees_oak:TEXT"}}, trees_ash="TEXT = 'Ash'",
            trees_oak="TEXT = 'Oak'")  # fmt: skip
    registry = texts()
    assert registry["own"] == "Footplate's"
    assert "trees_ash" not in sys.modules
    assert registry["ash"] == "Ash"
    assert "trees_oak" not in sys.modules
    assert registry.load_plugins() == {"ash": "Ash", "oak": "Oak"}
    assert registry.packages == {"ash": "trees", "oak": "trees"}
    assert registry.left_out == []


def test_broken_plugin_is_skipped_by_name(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    points = {"ash": "trees_ash:TEXT", "elm": "trees_elm:TEXT", "fir": "trees_ash:FIR", "yew": "trees_yew:TEXT"}
    install(site, "trees", {GROUP: points}, trees_ash="TEXT = 'Ash'", trees_elm="import no_such_module",
            trees_yew="raise SystemExit('no yews here\\nand more')")  # fmt: skip
    registry = texts()
    assert dict(registry) == {"own": "Footplate's", "ash": "Ash"}
    reasons = {each.name: each.reason for each in registry.left_out}
    assert reasons["elm"] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert reasons["fir"].startswith("AttributeError: module 'trees_ash' has no attribute 'FIR'")
    assert reasons["yew"] == "SystemExit: no yews here"
    message = "Skipping the plug-in “elm” (footplate.models) of the package trees: ModuleNotFoundError: "
    assert message in capfd.readouterr().err
    with pytest.raises(KeyError):
        registry["elm"]


def test_invalid_plugin_objects_are_skipped(site: Path) -> None:
    install(site, "first", {GROUP: {"own": "first_pkg:TEXT", "ash": "first_pkg:TEXT", "oak": "first_pkg", "taken": "first_pkg:TEXT"}},
            first_pkg="TEXT = 'first'")  # fmt: skip
    install(site, "second", {GROUP: {"ash": "second_pkg:TEXT"}}, second_pkg="TEXT = 'second'")
    registry = texts()
    assert dict(registry).keys() == {"own", "ash"}
    assert registry["own"] == "Footplate's"
    skipped = {str(each) for each in registry.left_out}
    assert (
        "Skipping the plug-in “own” (footplate.models) of the package first: Footplate already has one of that name."
        in skipped
    )
    assert "Skipping the plug-in “oak” (footplate.models) of the package first: it is a module, not a text." in skipped
    twice = next(each for each in registry.left_out if each.name == "ash")
    assert {twice.package, registry["ash"]} == {"first", "second"}


def test_fingerprint_depends_on_the_version(site: Path) -> None:
    install(site, "trees", {GROUP: {"ash": "trees_ash:TEXT"}})
    install(site, "stones", {"console_scripts": {"stones": "stones:main"}})
    install(site, "rocks", {"footplate.strategies": {"slate": "rocks:SLATE"}})
    assert plugin_packages() == ["rocks", "trees"]
    first = fingerprint()
    assert first
    fingerprint.cache_clear()
    assert fingerprint() == first
    found = {"", first}
    for before, after in (("1.0.dist", "1.1.dist"), ("1.1.dist", "1.1.egg")):
        (site / f"trees-{before}-info").rename(site / f"trees-{after}-info")
        fingerprint.cache_clear()
        assert fingerprint() not in found
        found.add(fingerprint())
    (site / "rocks-1.0.dist-info" / "entry_points.txt").unlink()
    fingerprint.cache_clear()
    assert fingerprint() not in found


def test_metric_is_left_out_only_of_its_tasks(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
from engine.metrics.registry import AddedMetric
MASKS, CLASSES = (AddedMetric("", (task,), 1, None, None) for task in ("segmentation", "classification"))
"""
    points = {"top1": "more_metrics:MASKS", "miou": "more_metrics:CLASSES"}
    install(site, "more", {"footplate.metrics": points}, more_metrics=code)
    known: Registry[metrics.AddedMetric] = Registry("footplate.metrics", {}, metrics.METRICS._accept)
    monkeypatch.setattr(metrics, "METRICS", known)
    taken = (Measure("top1", "", True, True),)
    assert metrics.find_plugin_metrics("classification", taken).keys() == {"miou"}
    assert metrics.find_plugin_metrics("segmentation", ()).keys() == {"top1"}
    assert known.left_out == []
    assert metrics.find_plugin_metrics("segmentation", taken) == {}
    assert [each.name for each in known.left_out] == ["top1"]


def test_unusable_models_tasks_and_strategies_are_skipped(site: Path) -> None:
    code = """
from engine.models.base import Model
from engine.strategies.zero1 import ShardedOptimizer
from engine.tasks.classification.task import Classification
MODEL = Model("Net", "classification", build=lambda classes, channels: None)
WITH_OPTIONS = MODEL._replace(options=int)
"""
    points = {
        "footplate.models": {
            "net": "nets:MODEL", "timm:net": "nets:MODEL", "net.py": "nets:MODEL", "loads": "json:loads", "more": "nets:WITH_OPTIONS",
        },
        "footplate.tasks": {"classification": "nets:Classification", "class": "nets:Classification", "loads": "json:loads"},
        "footplate.strategies": {"zero1": "nets:ShardedOptimizer", "zero": "nets:ShardedOptimizer", "loads": "json:loads"},
    }  # fmt: skip
    install(site, "nets", points, nets=code)
    models: Registry[Model] = Registry("footplate.models", {}, MODELS._accept)
    assert models.load_plugins().keys() == {"net"}
    assert {each.name for each in models.left_out} == {"timm:net", "net.py", "loads", "more"}
    tasks: Registry[Task] = Registry("footplate.tasks", {}, TASKS._accept)
    assert {name: type(task).__name__ for name, task in tasks.load_plugins().items()} == {
        "classification": "Classification"
    }
    strategies: Registry[type[Strategy]] = Registry("footplate.strategies", {}, STRATEGIES._accept)
    assert strategies.load_plugins().keys() == {"zero1"}
    for left_out, wrong_name, name, base in (
        (tasks.left_out, "class", "classification", "Task of engine.tasks.base"),
        (strategies.left_out, "zero", "zero1", "Strategy of engine.strategies"),
    ):
        assert {each.name: each.reason for each in left_out} == {
            wrong_name: f"the id of its entry is “{name}”",
            "loads": f"it is a function, not a subclass of {base}",
        }


def test_failing_plugin_format_is_skipped(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
from engine.data.formats.format import Format

def detect(tree):
    raise OSError(5, "Input/output error") if tree.files("", ".txt") else KeyError("no such column")

HASTY = Format("hasty", "hasty tables", ("classes",), "a table", detect, None)
"""
    install(site, "hasty", {"footplate.formats": {"hasty": "hasty_pkg:HASTY"}}, hasty_pkg=code)
    known = Registry("footplate.formats", formats.FORMATS.built_in, formats._make_plugin_format)
    monkeypatch.setattr(formats, "FORMATS", known)
    for name in ("ants", "bees"):
        images.write_image(tmp_path / "set" / name / "0.png")
        images.write_image(tmp_path / "set" / name / "1.png")
    (tmp_path / "set/a.txt").touch()
    (problem,) = formats.recognize(str(tmp_path / "set"), val_fraction=0.5, seed=0).problems
    assert ("Input/output error" in problem.message, "hasty" in known) == (True, True), "it is the disk's fault"
    (tmp_path / "set/a.txt").unlink()
    found = formats.recognize(str(tmp_path / "set"), val_fraction=0.5, seed=0)
    assert found.classes == ("ants", "bees")
    assert "hasty" not in known
    (left_out,) = known.left_out
    assert (left_out.package, left_out.name) == ("hasty", "hasty")
    assert "KeyError: 'no such column'" in left_out.reason
