"""``footplate train``: validate the requested job, start the run, and follow it."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from engine.checks.disk import BackgroundDisk, Disk
from engine.checks.gpu_checks import gpu_problems
from engine.checks.job_checks import REAL_DISK, dataset_problems, problems
from engine.checks.machine_findings import cpu_warnings
from engine.checks.torch_support import find_installed_torch
from engine.checks.weights_checks import choose_model, describe_weights
from engine.cli import arguments, children, watching
from engine.cli.inspect import SAMPLES, format_samples
from engine.cli.terminal import COMPLETED, print_lines, report_unwritable, require_valid, show_progress
from engine.contract.catalogue import TaskEntry, load_catalogue
from engine.contract.dataset import DatasetReport, describe_channels
from engine.contract.devices import Snapshot, is_gpu
from engine.contract.job import FIELDS, Job, job_from_values
from engine.contract.problems import Problem, errors
from engine.contract.recipes import Recipe, collect_facts, initial_recipe, load_recipes
from engine.runs.folder import create_run
from engine.runs.launch import start_supervisor
from engine.system.format import counted


def train(options: argparse.Namespace) -> int:
    """Start a run and follow it. Returns its exit code, or 0 at once with `--detach`."""
    job = require_valid(*validate(options))
    with report_unwritable():
        run = create_run(job)
        start_supervisor(run)
    if options.detach:
        print_lines(run.run_id)
        return COMPLETED
    if not options.json:
        print_lines(f"Run {run.run_id} in {run.path}", to=sys.stderr)
    return watching.follow(run, json=options.json, stop_on_interrupt=True)


def validate(options: argparse.Namespace) -> tuple[Job | None, list[Problem]]:
    """Validate the flags and the job file. Returns the job, or None if it is invalid, and all errors and warnings.

    The dataset is inspected. A task, a model and a recipe are chosen if none is given, and these choices are printed. To
    report all problems at once, checks that need a valid job use a draft without the invalid values.
    """
    values, found = arguments.read_job_values(options)
    given = set(values)
    detected = _detect_task(values)
    _contact_weight_servers(values)
    if detected is not None and not options.json:
        print_lines(f"Task: {detected.title}. Choose another with --task.", to=sys.stderr)
    has_devices = "devices" in values
    machine = None
    if has_devices and arguments.needs_gpus(values):
        machine = read_machine(found)
    elif not has_devices:  # only for warnings about unused GPUs, so a failure doesn't matter
        machine = read_machine([])
    if machine is not None and has_devices:
        found += arguments.resolve_devices(values, machine)
    _, wrong = job_from_values(values)
    found += wrong
    invalid_fields = {problem.field for problem in found}
    draft = _make_job_without_invalid(values, invalid_fields)
    if draft is None:
        return None, found
    dataset = _inspect(draft, found)
    model = _choose_model(values, REAL_DISK)
    recipe = None
    chooses_recipe = options.recipe is None and options.job is None
    if chooses_recipe or options.recipe:
        recipe, wrong = _apply_recipe(values, dataset)
        found += wrong
    draft = _make_job_without_invalid(values, invalid_fields) or draft
    wrong = problems(draft, load_catalogue(), machine, dataset, chosen=given if recipe is not None else None)
    wrong += gpu_problems(draft, machine, find_installed_torch(), os.environ)
    if machine is not None:
        wrong += cpu_warnings(draft, machine, find_installed_torch(), os.environ, chosen=has_devices)
    found += [problem for problem in wrong if problem.field not in invalid_fields]
    if not options.json:
        _announce(draft, dataset, model, recipe.title if chooses_recipe and recipe is not None else "")
    job, _ = job_from_values(values)  # None if any value is invalid
    return job, found


def _announce(job: Job, dataset: DatasetReport | None, model: str, recipe: str) -> None:
    """Print the report on the dataset, and how the model and the recipe were chosen.

    `model` and `recipe` are the reasons for automatic choices, or "" if the user chose.
    """
    if dataset is not None:
        print_lines(*dataset_lines(dataset), to=sys.stderr)
    if model:
        print_lines(f"Model: {model}. Choose another with --model.", to=sys.stderr)
    if recipe:
        print_lines(f"Recipe: {recipe}. Choose another with --recipe.", to=sys.stderr)
    if job.model.pretrained and not job.model.weights_file:
        print_lines(describe_weights(job, load_catalogue(), REAL_DISK), to=sys.stderr)


def read_machine(found: list[Problem]) -> Snapshot | None:
    """Return this machine's devices. If that fails, append a problem to `found` and return None."""
    try:
        return children.read_snapshot()
    except children.ChildFailed as error:
        found.append(Problem("devices", f"This machine's devices could not be read: {error}.", "Use cpu."))
        return None


def _make_job_without_invalid(values: dict[str, Any], invalid_fields: set[str]) -> Job | None:
    """Create a job from `values` or, if they are invalid, from those without `invalid_fields`. Returns None on failure."""
    job, _ = job_from_values(values)
    if job is None:
        job, _ = job_from_values({name: value for name, value in values.items() if name not in invalid_fields})
    return job


def _contact_weight_servers(values: dict[str, Any]) -> None:
    """Start to check in the background whether the servers with pretrained weights are reachable.

    The check runs while the dataset is inspected.
    """
    draft = dict(values)  # the results are not used, only the requests matter, which BackgroundDisk makes in threads
    _choose_model(draft, BackgroundDisk())
    collect_facts(draft, load_catalogue(), report=None, chosen=draft, disk=BackgroundDisk())


def _choose_model(values: dict[str, Any], disk: Disk) -> str:
    """Add the best default model for the task to `values`, unless a model is given.

    If only an encoder is given, the task's default model is added if it is built on an encoder. Returns the reason for
    the choice, or "" if the user chose the model or the encoder.
    """
    catalogue = load_catalogue()
    task = catalogue.task(str(values.get("task", FIELDS["task"].default)))
    if task is None or "model" in values or not task.defaults:
        return ""
    if "encoder" in values and task.defaults[-1].encoder:
        values["model"] = task.model
        return ""
    devices = values.get("devices")
    uses_gpu = isinstance(devices, list) and any(is_gpu(str(device)) for device in devices)
    choice = choose_model(task, catalogue, disk, uses_gpu=uses_gpu)
    values["model"] = choice.model
    if choice.encoder:
        values["encoder"] = choice.encoder
    return choice.reason


def _apply_recipe(values: dict[str, Any], report: DatasetReport | None) -> tuple[Recipe | None, list[Problem]]:
    """Set the fields without a value in `values` according to the recipe named there, or else one that fits the job.

    The field "recipe" is set to the recipe's id, or keeps the path of its file. Returns the recipe, or None and the
    problems.
    """
    catalogue = load_catalogue()
    facts = collect_facts(values, catalogue, report, values, REAL_DISK)
    recipe, wrong = load_recipes().find(str(values.get("recipe") or initial_recipe(facts)))
    if recipe is None:
        return None, wrong
    if not recipe.is_for(facts.task):
        ids = ", ".join(each.id for each in load_recipes().for_task(facts.task))
        message = f"“{recipe.title}” is not a recipe for the task {facts.task}."
        return None, [Problem("recipe", message, f"Choose {ids}.")]
    for name, value in recipe.values(facts).items():
        values.setdefault(name, value)
    if not str(values.get("recipe", "")).endswith(".toml"):
        values["recipe"] = recipe.id
    return recipe, []


def _detect_task(values: dict[str, Any]) -> TaskEntry | None:
    """Add the task that fits the annotations in the folder to `values`, unless a task or a known model is given.

    A model name that the catalogue doesn't list is probably misspelled, so the task is added in spite of it. Returns
    the task if it was added, otherwise None.
    """
    from engine.data.formats.registry import detect_kind  # slow to import

    model = str(values.get("model", ""))
    # Paths of files and names of timm's models, which the catalogue may not list, are not identifiers.
    is_unknown_name = model.isidentifier() and load_catalogue().model(model) is None
    has_known_model = "model" in values and not is_unknown_name
    if "task" in values or has_known_model:
        return None
    kind = detect_kind(str(values.get("dataset", "")), str(values.get("format", "")))
    detected = load_catalogue().task_of(kind) if kind is not None else None
    if detected is not None:
        values["task"] = detected.id
    return detected


def _inspect(job: Job, found: list[Problem]) -> DatasetReport | None:
    """Inspect the dataset of a job. Returns None if the folder doesn't exist or can't be inspected.

    If the inspection fails, a problem is appended to `found`. Other checks report a missing folder.
    """
    if errors(dataset_problems(job)):
        return None
    try:
        with show_progress() as on_progress:
            return children.inspect(job, on_progress, samples=SAMPLES)
    except children.ChildFailed as error:
        message = f"The folder could not be inspected: {error}."
        found.append(Problem("dataset", message, "Try again, or another folder."))
        return None


def dataset_lines(report: DatasetReport) -> list[str]:
    """Format the report on a dataset as lines of text. Uncertain labels are listed for checking."""
    if not report.format:
        return [f"{report.folder}: not recognized"]
    entry = load_catalogue().annotation_kinds.get(report.kind)
    has_images = entry is None or entry.sample == "image"
    channels = f", {describe_channels(report.channels)}" if has_images else ""
    classes = "" if report.kind == "files" else f", {counted(len(report.classes), 'class')}"
    splits = ", ".join(
        f"{split.images} {split.name}" + (" (held out)" if split.is_drawn else "") for split in report.splits
    )
    lines = [f"{report.folder}: {report.title}{classes}{channels}; {splits}"]
    if not report.certain:
        lines.append(f"Recognized by: {'; '.join(report.evidence)}. Check that these labels are right:")
        lines += [f"  {line}" for line in format_samples(report.samples)]
    return lines
