"""``footplate save``: a last state that its own disk does not take goes to another folder."""

from __future__ import annotations

import argparse
import os
import sys

from engine.cli.exit_codes import BAD_REQUEST, COMPLETED, FAILED, INTERRUPTED, UNSAVED
from engine.cli.terminal import say
from engine.cli.watching import Detached, Watcher, find_or_say, leave, on_interrupt
from engine.contract.events import EVENT, Warned
from engine.contract.protocol import SaveElsewhere
from engine.runs.connection import NotAnswering, NotRunning, send, silent
from engine.runs.folder import RunFolder
from engine.runs.interruptions import why_interrupted
from engine.system.plain_text import encodable


def add_save(parser: argparse.ArgumentParser) -> None:
    """Adds the run and the folder."""
    parser.add_argument("run", help="a run's id, the beginning of one, its name, or “last”")
    parser.add_argument("--to", required=True, metavar="FOLDER", help="the folder to save it in")
    parser.set_defaults(command=save)


def save(options: argparse.Namespace) -> int:
    """Has a run whose own folder does not take its last state save that in another one, and says what came of it."""
    run = find_or_say(options.run)
    if run is None:
        return BAD_REQUEST
    try:
        code, text = _saved(run, encodable(os.path.abspath(os.path.expanduser(options.to))))
    except NotRunning as error:
        code, text = BAD_REQUEST, f"{run.run_id} is not running; it is {run.state()}. ({error})"
    except NotAnswering as error:
        code, text = FAILED, str(error)
    except Detached:
        return INTERRUPTED
    say(text if code == COMPLETED else f"footplate: {text}", to=sys.stdout if code == COMPLETED else sys.stderr)
    return code


def _saved(run: RunFolder, folder: str) -> tuple[int, str]:
    """The exit code, and what to say."""
    welcome = send(run, SaveElsewhere(folder=folder))
    if welcome is None:
        raise NotAnswering(silent(run))
    answers: list[Warned] = []

    def note(line: bytes) -> None:
        event = EVENT.decode(line)
        if isinstance(event, Warned) and event.code in ("saved_elsewhere", "not_saved_elsewhere"):
            answers.append(event)
            if event.code == "not_saved_elsewhere":
                raise _Refused(event.message)

    watcher = Watcher(run, note, from_n=welcome.next_n)
    try:
        with on_interrupt(watcher):
            watcher.follow(leave)
    except _Refused as refusal:
        return BAD_REQUEST, str(refusal)
    finally:
        watcher.close()
    finished = watcher.finished
    if finished is None:
        return FAILED, f"{run.run_id} was interrupted: {why_interrupted(run)}"
    if answers:
        return COMPLETED, finished.cause
    if finished.outcome in ("failed", "unsaved"):
        return UNSAVED if finished.outcome == "unsaved" else FAILED, finished.cause
    return COMPLETED, f"{run.run_id} is {finished.outcome}: its last state has been saved in its own folder after all."


class _Refused(Exception):  # noqa: N818 - the folder's fault
    """The state is not saved there."""
