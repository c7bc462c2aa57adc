"""``footplate save``: saving the last state of a run in another folder if its own disk can't take it."""

from __future__ import annotations

import argparse
import os

from engine.cli.arguments import RUN
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED, FAILED, INTERRUPTED, UNSAVED
from engine.cli.terminal import fail, say
from engine.cli.watching import Detached, Watcher, detach, find_or_report, on_interrupt
from engine.contract.events import EVENT, Warned
from engine.contract.protocol import SaveElsewhere
from engine.runs.connection import NotAnswering, NotRunning, send, silent
from engine.runs.folder import RunFolder
from engine.runs.interruptions import why_interrupted
from engine.system.plain_text import encodable


def add_save(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help=RUN)
    parser.add_argument("--to", required=True, metavar="FOLDER", help="the folder to save it in")
    parser.set_defaults(command=save)


def save(options: argparse.Namespace) -> int:
    """Ask a run that can't save its last state to save it in another folder, and report the result."""
    run = find_or_report(options.run)
    if run is None:
        return BAD_REQUEST
    try:
        code, text = _save(run, encodable(os.path.abspath(os.path.expanduser(options.to))))
    except NotRunning as error:
        code, text = BAD_REQUEST, f"{run.run_id} is not running; it is {run.state()}. ({error})"
    except NotAnswering as error:
        code, text = FAILED, str(error)
    except Detached:
        return INTERRUPTED
    if code != COMPLETED:
        return fail(text, code)
    say(text)
    return code


def _save(run: RunFolder, folder: str) -> tuple[int, str]:
    """Return the exit code and the message of the result."""
    welcome = send(run, SaveElsewhere(folder=folder))
    if welcome is None:
        raise NotAnswering(silent(run))
    is_saved_elsewhere = False

    def note(line: bytes) -> None:
        nonlocal is_saved_elsewhere
        event = EVENT.decode(line)
        if isinstance(event, Warned) and event.code == "not_saved_elsewhere":
            raise _Refused(event.message)
        is_saved_elsewhere |= isinstance(event, Warned) and event.code == "saved_elsewhere"

    watcher = Watcher(run, note, from_n=welcome.next_n)
    try:
        with on_interrupt(watcher):
            watcher.follow(detach)
    except _Refused as refusal:
        return BAD_REQUEST, str(refusal)
    finally:
        watcher.close()
    finished = watcher.finished
    if finished is None:
        return FAILED, f"{run.run_id} was interrupted: {why_interrupted(run)}"
    if is_saved_elsewhere:
        return COMPLETED, finished.cause
    if finished.outcome in ("failed", "unsaved"):
        return UNSAVED if finished.outcome == "unsaved" else FAILED, finished.cause
    return COMPLETED, f"{run.run_id} is {finished.outcome}: its last state was saved in its own folder."


class _Refused(Exception):  # noqa: N818 - the folder's fault
    """Refusal of a folder by the run's supervisor."""
