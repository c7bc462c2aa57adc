"""``footplate runs``, ``catalogue`` and ``recipes``: list runs, tasks and models, or recipes."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path

import msgspec

from engine.cli.terminal import BAD_REQUEST, COMPLETED, format_table, print_error, print_lines
from engine.contract.catalogue import command_if_missing, load_catalogue
from engine.contract.protocol import ENCODE
from engine.contract.recipes import load_recipes
from engine.runs.folder import ENDED, RunFolder, RunSummary
from engine.runs.index import RunIndex
from engine.runs.metrics import format_best_metric
from engine.runs.slurm import refresh_slurm_states
from engine.system import paths
from engine.system.files import read_file
from engine.system.format import duration


def runs(options: argparse.Namespace) -> int:
    """Print all runs, newest first. Returns an exit code.

    Before that, the states of unfinished SLURM jobs are queried and recorded in the folders of their runs.
    """
    index = RunIndex()
    summaries = list(
        index.summaries(lambda run_id, error: print_lines(f"{run_id} can't be read: {error}", to=sys.stderr))
    )
    # Jobs may have ended since their states were recorded. If so, the summaries above are outdated.
    if refresh_slurm_states(RunFolder(run.folder) for run in summaries if run.slurm and run.state not in ENDED):
        summaries = list(index.summaries())
    if options.json:
        print_lines(*(ENCODE.encode(summary).decode() for summary in summaries))
    elif summaries:
        head = ("RUN", "NAME", "MODEL", "STRATEGY", "DEVICES", "BEST", "TIME", "STATE", "TAGS")
        print_lines(*format_table(head, [_format_run_row(summary) for summary in summaries]))
    else:
        print_lines(f"There are no runs in {paths.runs_folder()}. Start one with `footplate train DATASET`.")
    return COMPLETED


def _format_run_row(run: RunSummary) -> tuple[str, ...]:
    """Return the cells of a run in the printed table."""
    devices = ",".join(dict.fromkeys(device[:12] for device in run.devices))  # the beginnings of UUIDs
    if len(run.devices) > 1:
        devices += f" x{len(run.devices)}"
    model = run.model.rsplit("/", maxsplit=1)[-1]
    name = f"{run.name or '–'}{' ★' if run.favorite else ''}"
    time, tags = duration(run.seconds), ", ".join(run.tags)
    state = f"{run.state} ({run.slurm})" if run.slurm and run.state not in ENDED else run.state
    return (run.run_id, name, model, run.strategy, devices, format_best_metric(run), time, state, tags)


def catalogue(options: argparse.Namespace) -> int:
    """Print tasks, models and strategies. Returns an exit code."""
    entries = load_catalogue()
    if options.json:
        print_lines(*msgspec.json.format(ENCODE.encode(entries), indent=1).decode().split("\n"))
        return COMPLETED
    print_lines(*format_table(("TASK", "TITLE"), [(task.id, task.title) for task in entries.tasks]))
    print_lines("")
    rows = [(entry.id, entry.title, entry.summary) for entry in entries.strategies]
    print_lines(*format_table(("STRATEGY", "TITLE", "WHAT IT DOES"), rows))
    print_lines("")
    models = [
        (
            model.id,
            model.family,
            f"{model.parameters / 1e6:.1f} M",
            f"{model.image_size} px" if model.image_size else "–",
            "yes" if model.weights else "–",
            model.published or "–",
            command_if_missing(model.extra) or str(len(model.possible_split_points) or model.unsplittable_reason),
        )
        for model in entries.models
    ]
    print_lines(
        *format_table(("MODEL", "FAMILY", "PARAMETERS", "IMAGES", "PRETRAINED", "ACCURACY", "SPLIT POINTS"), models)
    )
    return COMPLETED


def add_recipes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(command=recipes)
    actions = parser.add_subparsers(metavar="ACTION")
    command = actions.add_parser("show", help="print a recipe's file, with the reasons for its values")
    command.add_argument("recipe", metavar="NAME", help="a recipe's name or title, or the path of its file")
    command.set_defaults(command=show_recipe)


def recipes(options: argparse.Namespace) -> int:
    """Print all recipes, and the problems with the user's recipe files. Returns an exit code."""
    found = load_recipes()
    if options.json:
        print_lines(*(ENCODE.encode(msgspec.to_builtins(recipe)).decode() for recipe in (*found.all, *found.broken)))
        return COMPLETED
    rows = [(recipe.id, recipe.title, ", ".join(recipe.tasks) or "all", recipe.about) for recipe in found.all]
    print_lines(*format_table(("RECIPE", "TITLE", "TASKS", "ABOUT"), rows))
    for broken in found.broken:
        print_lines(
            "", f"{broken.path} can't be used:", *(f"  {problem}" for problem in broken.problems), to=sys.stderr
        )
    return COMPLETED


def show_recipe(options: argparse.Namespace) -> int:
    """Print the content of a recipe's file. Returns an exit code."""
    recipe, problems = load_recipes().find(options.recipe)
    if recipe is None:
        for problem in problems:
            print_error(str(problem))
        return BAD_REQUEST
    path = Path(recipe.path or str(files("resources").joinpath("recipes", f"{recipe.id}.toml")))
    print_lines(f"# {path}", *read_file(path).decode().removesuffix("\n").split("\n"))
    return COMPLETED
