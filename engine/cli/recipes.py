"""``footplate recipes``: what a task may do by default, and what a recipe says."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path

import msgspec

from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.table import table
from engine.cli.terminal import say
from engine.contract.protocol import ENCODE
from engine.contract.recipes import Recipe, load_recipes


def add_recipes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(command=recipes)
    actions = parser.add_subparsers(metavar="ACTION")
    showing = actions.add_parser("show", help="print a recipe's file, with the reasons for its values")
    showing.add_argument("recipe", metavar="NAME", help="a recipe's name or title, or the path of its file")
    showing.set_defaults(command=show)


def recipes(options: argparse.Namespace) -> int:
    """Lists all recipes; a file of the user's that is none is named with why."""
    known = load_recipes()
    if options.json:
        for one in (*known.all, *known.broken):
            say(ENCODE.encode(msgspec.to_builtins(one)).decode())
        return COMPLETED
    rows = [(one.id, one.title, ", ".join(one.tasks) or "all", one.about) for one in known.all]
    say(*table(("RECIPE", "TITLE", "TASKS", "ABOUT"), rows))
    for broken in known.broken:
        say("", f"{broken.path} can't be used:", to=sys.stderr)
        for problem in broken.problems:
            say(f"  {problem}", to=sys.stderr)
    return COMPLETED


def show(options: argparse.Namespace) -> int:
    """Prints a recipe's file."""
    recipe, problems = load_recipes().find(options.recipe)
    if recipe is None:
        for problem in problems:
            say(f"footplate: {problem}", to=sys.stderr)
        return BAD_REQUEST
    path = _file(recipe)
    say(f"# {path}", *path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    return COMPLETED


def _file(recipe: Recipe) -> Path:
    return Path(recipe.path or str(files("resources").joinpath("recipes", f"{recipe.id}.toml")))
