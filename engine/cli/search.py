"""``footplate search``: many trials of a job with different settings, and their results."""

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
from engine.cli import search_request, search_views, watching
from engine.cli.terminal import (
    BAD_REQUEST,
    COMPLETED,
    FAILED,
    INTERRUPTED,
    StatusLine,
    fail,
    report,
    report_unwritable,
    say,
)
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

_POLL_S = 0.2
_EXIT_CODES = {"completed": COMPLETED, "failed": FAILED, "stopped": INTERRUPTED, "interrupted": INTERRUPTED}


def add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "space", nargs="?", metavar="SPACE.toml|NAME", help="the search space, or the name of a search to show"
    )
    parser.add_argument("--list", action="store_true", help="list all searches, with their progress")
    parser.add_argument("--continue", dest="resumes", action="store_true", help="continue the search of that name")
    parser.add_argument("--stop", action="store_true", help="stop the search of that name; its trials are paused")
    parser.add_argument(
        "--train-best",
        nargs="?",
        type=int,
        const=-1,
        metavar="NUMBER",
        help="train the best settings, or those of a trial, in full",
    )
    parser.add_argument("--detach", action="store_true", help="start the search, print its name and return")
    parser.add_argument("--json", action="store_true", help="print JSON objects instead of text")
    search_request.add_request(parser)
    parser.set_defaults(command=search)


def search(options: argparse.Namespace) -> int:
    """Start, show or change a search; return its exit code."""
    if options.list:
        return _list(json=options.json)
    is_known = options.space and not options.space.endswith(".toml") and not options.vary
    if is_known:
        return _act(options)
    requested, found = search_request.build_search(options)
    if options.detach and options.train_best is not None:
        remedy = f"Leave one out, or run it later: footplate search {quote(requested.name if requested else 'NAME')} --train-best"
        found.append(Problem("--train-best", "A detached search can't train its best trial.", remedy))
    report(found)
    if requested is None or errors(found):
        return BAD_REQUEST
    with report_unwritable():
        folder = create_search(requested)
        start_driver(folder)
    return _after_start(folder, requested, options)


def _act(options: argparse.Namespace) -> int:
    """Show, stop or continue a known search, or train its best trial."""
    folder = SearchFolder(searches_folder() / Path(options.space).name)
    requested = folder.search()
    if requested is None:
        known = ", ".join(each.name for each in list_searches()[:5])
        hint = f"There are {known}." if known else "There are no searches."
        return fail(f"there is no search “{options.space}”. {hint}")
    if options.stop:
        return _stop(folder)
    if options.resumes:
        return _continue(folder, requested, options)
    if options.train_best is not None:
        return _train_best(folder, requested, options)
    state = folder.state()
    if options.json:
        say(msgspec.json.encode(state).decode())
    else:
        say(*search_views.lines(requested, state, folder.status()))
    return COMPLETED


def _continue(folder: SearchFolder, requested: Search, options: argparse.Namespace) -> int:
    found = room_problems(requested, load_catalogue(), folder.path)
    if found:
        return report(found)
    with report_unwritable():
        start_driver(folder)
    return _after_start(folder, requested, options)


def _after_start(folder: SearchFolder, requested: Search, options: argparse.Namespace) -> int:
    if options.detach:
        say(folder.name)
        return COMPLETED
    code = _follow(folder, requested, json=options.json)
    if code == COMPLETED and options.train_best is not None:
        return _train_best(folder, requested, options)
    return code


def _follow(folder: SearchFolder, requested: Search, *, json: bool) -> int:
    """Print each finished trial until the search ends. The first Ctrl+C stops it, the second one detaches."""
    interrupts: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        interrupts.append(number)

    previous = signal.signal(signal.SIGINT, handler)
    line, handled, printed = StatusLine(sys.stderr), 0, _ended(folder.state())
    try:
        while True:
            status = folder.status()
            state = folder.state()
            for row in state.trials:
                if row.ended and row.number not in printed:
                    printed.add(row.number)
                    line.clear()
                    say(msgspec.json.encode(row).decode() if json else search_views.trial_line(requested, row))
            if status != "running":
                line.clear()
                say(*([msgspec.json.encode(state).decode()] if json else search_views.lines(requested, state, status)))
                return _EXIT_CODES[status]
            line.show(search_views.progress_line(requested, state))
            if len(interrupts) > max(1, handled):
                line.clear()
                say(f"The search continues in the background: footplate search {quote(folder.name)}", to=sys.stderr)
                return INTERRUPTED
            if interrupts and not handled:
                handled = len(interrupts)
                stop_driver(folder)
                say("Pausing the trials. Press Ctrl+C again to detach from the search.", to=sys.stderr)
            time.sleep(_POLL_S)
    finally:
        signal.signal(signal.SIGINT, previous)


def _ended(state: SearchState) -> set[int]:
    return {row.number for row in state.trials if row.ended}


def _stop(folder: SearchFolder) -> int:
    if not stop_driver(folder):
        say(f"“{folder.name}” is not running; it is {folder.status()}.")
        return COMPLETED
    while folder.driver() is not None:
        time.sleep(_POLL_S)
    say(f"“{folder.name}” is {folder.status()}. To continue it: footplate search {quote(folder.name)} --continue")
    return COMPLETED


def _train_best(folder: SearchFolder, requested: Search, options: argparse.Namespace) -> int:
    state = folder.state()
    number = state.best if options.train_best < 0 else options.train_best
    row = state.row(number)
    if row is None:
        front = ", ".join(map(str, state.front))
        hint = f"Choose one: --train-best NUMBER, of {front}." if front else "Let a trial complete first."
        return fail(f"--train-best: the search has no single best trial. {hint}")
    with report_unwritable():
        run = train_best(requested, row)
    if options.detach:
        say(run.run_id)
        return COMPLETED
    say(f"Training the settings of trial {row.title} in full: run {run.run_id}", to=sys.stderr)
    return watching.follow(run, json=options.json, stop_on_interrupt=True)


def _list(*, json: bool) -> int:
    known = [(folder, requested) for folder in list_searches() if (requested := folder.search()) is not None]
    if json:
        for folder, _ in known:
            row = {"name": folder.name, "status": folder.status(), "state": folder.state()}
            say(msgspec.json.encode(row).decode())
    elif known:
        say(*search_views.search_table([(requested, folder.state(), folder.status()) for folder, requested in known]))
    else:
        say("There are no searches. Start one with `footplate search SPACE.toml`.")
    return COMPLETED
