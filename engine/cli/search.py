"""``footplate search``: many trials of a job, each with other settings, and what came of them."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from shlex import quote
from types import FrameType

import msgspec

from engine.checks.search_checks import room_problems
from engine.cli import search_request, search_views, train, watching
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED, FAILED, INTERRUPTED
from engine.cli.terminal import Line, say
from engine.contract.catalogue import load_catalogue
from engine.contract.problems import Problem, errors
from engine.contract.search import Search, SearchState
from engine.runs.searches import (
    SearchFolder,
    create_search,
    list_searches,
    searches_folder,
    start_driver,
    stop_driver,
    train_best,
)

_LOOK_S = 0.2
_AFTER = {"completed": COMPLETED, "failed": FAILED, "stopped": INTERRUPTED, "interrupted": INTERRUPTED}


def add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "space", nargs="?", metavar="SPACE.toml|NAME", help="what to search, or the name of a search to be shown"
    )
    parser.add_argument("--list", action="store_true", help="list all searches, with their progress")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="continue the search of that name")
    parser.add_argument("--stop", action="store_true", help="stop the search of that name; its trials are paused")
    parser.add_argument(
        "--train-best",
        nargs="?",
        type=int,
        const=-1,
        metavar="NUMBER",
        help="then train the best settings in full, or those of a trial",
    )
    parser.add_argument("--detach", action="store_true", help="start the search, print its name and return")
    parser.add_argument("--json", action="store_true", help="print JSON objects instead of text")
    search_request.add_request(parser)
    parser.set_defaults(command=search)


def search(options: argparse.Namespace) -> int:
    """Searches, or tells of searches; the exit code tells how it went."""
    if options.list:
        return _list(json=options.json)
    named = options.space and not options.space.endswith(".toml") and not options.vary
    if named:
        return _with_known(options)
    asked, found = search_request.request(options)
    if options.detach and options.train_best is not None:
        remedy = f"Leave one out, or later: footplate search {quote(asked.name if asked else 'NAME')} --train-best"
        found.append(
            Problem("--train-best", "A detached search can't train its best: nobody waits for its end.", remedy)
        )
    train.tell(found)
    if asked is None or errors(found):
        return BAD_REQUEST
    try:
        folder = create_search(asked)
        start_driver(folder)
    except OSError as error:
        return train.unwritable(error)
    return _after_start(folder, asked, options)


def _with_known(options: argparse.Namespace) -> int:
    """Shows a search that there is, stops it, continues it or trains its best."""
    folder = SearchFolder(searches_folder() / Path(options.space).name)
    asked = folder.search()
    if asked is None:
        known = ", ".join(each.name for each in list_searches()[:5])
        hint = f"There are {known}." if known else "There are no searches yet."
        say(f"footplate: there is no search “{options.space}”. {hint}", to=sys.stderr)
        return BAD_REQUEST
    if options.stop:
        return _stop(folder)
    if options.go_on:
        return _continue(folder, asked, options)
    if options.train_best is not None:
        return _train_best(folder, asked, options)
    state = folder.state()
    if options.json:
        say(msgspec.json.encode(state).decode())
    else:
        say(*search_views.shown(asked, state, folder.status()))
    return COMPLETED


def _continue(folder: SearchFolder, asked: Search, options: argparse.Namespace) -> int:
    found = room_problems(asked, load_catalogue(), folder.path)
    train.tell(found)
    if found:
        return BAD_REQUEST
    try:
        start_driver(folder)
    except OSError as error:
        return train.unwritable(error)
    return _after_start(folder, asked, options)


def _after_start(folder: SearchFolder, asked: Search, options: argparse.Namespace) -> int:
    if options.detach:
        say(folder.name)
        return COMPLETED
    code = _follow(folder, asked, json=options.json)
    if code == COMPLETED and options.train_best is not None:
        return _train_best(folder, asked, options)
    return code


def _follow(folder: SearchFolder, asked: Search, *, json: bool) -> int:
    """Tells of each trial that ends until the search does. Ctrl+C stops it, a second one leaves it alone."""
    interrupts: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        interrupts.append(number)

    previous = signal.signal(signal.SIGINT, handler)
    line, handled, told = Line(sys.stderr), 0, _ended(folder.state())
    try:
        while True:
            status = folder.status()
            state = folder.state()
            for row in state.trials:
                if row.ended and row.number not in told:
                    told.add(row.number)
                    line.clear()
                    say(msgspec.json.encode(row).decode() if json else search_views.ended(asked, row))
            if status != "running":
                line.clear()
                say(*([msgspec.json.encode(state).decode()] if json else search_views.shown(asked, state, status)))
                return _AFTER[status]
            line.show(search_views.progress(asked, state))
            if len(interrupts) > max(1, handled):
                line.clear()
                say(f"The search continues in the background: footplate search {quote(folder.name)}", to=sys.stderr)
                return INTERRUPTED
            if interrupts and not handled:
                handled = len(interrupts)
                stop_driver(folder)
                say("Pausing the trials. Press Ctrl-C again to leave them alone.", to=sys.stderr)
            time.sleep(_LOOK_S)
    finally:
        signal.signal(signal.SIGINT, previous)


def _ended(state: SearchState) -> set[int]:
    return {row.number for row in state.trials if row.ended}


def _stop(folder: SearchFolder) -> int:
    if not stop_driver(folder):
        say(f"“{folder.name}” is not running; it is {folder.status()}.")
        return COMPLETED
    while folder.driver() is not None:
        time.sleep(_LOOK_S)
    say(f"“{folder.name}” is {folder.status()}. To continue it: footplate search {quote(folder.name)} --continue")
    return COMPLETED


def _train_best(folder: SearchFolder, asked: Search, options: argparse.Namespace) -> int:
    state = folder.state()
    number = state.best if options.train_best < 0 else options.train_best
    row = state.row(number)
    if row is None:
        front = ", ".join(map(str, state.front))
        hint = f"Choose one: --train-best NUMBER, of {front}." if front else "Let a trial complete first."
        say(f"footplate: --train-best: the search has no single best trial. {hint}", to=sys.stderr)
        return BAD_REQUEST
    try:
        run = train_best(asked, row)
    except OSError as error:
        return train.unwritable(error)
    if options.detach:
        say(run.run_id)
        return COMPLETED
    say(f"Training the settings of trial {row.title} in full: run {run.run_id}", to=sys.stderr)
    return watching.follow(run, json=options.json, stop_on_interrupt=True)


def _list(*, json: bool) -> int:
    known = [(folder, asked) for folder in list_searches() if (asked := folder.search()) is not None]
    if json:
        for folder, _asked in known:
            row = {"name": folder.name, "status": folder.status(), "state": folder.state()}
            say(msgspec.json.encode(row).decode())
    elif known:
        say(*search_views.listed([(asked, folder.state(), folder.status()) for folder, asked in known]))
    else:
        say("There are no searches yet. `footplate search SPACE.toml` makes one.")
    return COMPLETED
