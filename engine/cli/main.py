"""Parse the command line, and run the requested command."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from engine.cli import (
    advise,
    arguments,
    cache,
    convert,
    desktop,
    doctor,
    evaluate,
    explain,
    export,
    finders,
    hosts,
    inspect,
    listing,
    predict,
    queue,
    remote,
    resume,
    review,
    search,
    submit,
    train,
    watching,
)
from engine.cli.gpus import command as gpus
from engine.cli.terminal import INTERRUPTED, CommandError
from engine.runs.plugins import refresh_supplement
from engine.system.plugins import footplate_version

EPILOG = """exit codes: 0 done, 2 bad request, 3 the training failed, 4 its last state
could not be saved, 130 stopped or interrupted.
FOOTPLATE_HOME sets the folder of runs, FOOTPLATE_CACHE the folder of decoded images and
compiled code.
Without a command, `footplate` opens the window, and `footplate PATH` opens it with a dataset
folder or a job file."""
_COMMANDS_REPORTING_UNKNOWN_FLAGS = (
    train.train, resume.resume, finders.find_split_points, finders.find_rate, finders.find_batch, search.search,
    advise.advise, submit.torchrun, submit.submit,
)  # fmt: skip
"""Commands that report unknown flags together with all other problems with the job."""


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code.

    Before that, write the catalogue's supplement with the entries of installed plug-ins, unless it exists.
    """
    with suppress(OSError):  # commands that need the cache report that it can't be written
        refresh_supplement()
    commands = create_parser()
    options, unknown = commands.parse_known_args(argv)
    if unknown and options.command not in _COMMANDS_REPORTING_UNKNOWN_FLAGS:
        commands.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.unknown = unknown
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals without Unicode
    try:
        code: int = options.command(options)
    except CommandError as error:
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader is gone; a flush at exit must not fail
        return 0
    return code


def create_parser() -> argparse.ArgumentParser:
    """Create the parser for all commands. The parsed arguments have the requested command's function as `command`."""
    root = argparse.ArgumentParser(
        prog="footplate",
        description="Train vision models on this machine's devices, and watch them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"footplate {footplate_version()}")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    _add_training(commands)
    _add_runs(commands)
    queue.add_queue(commands.add_parser("queue", help="show and change the queue of runs that wait for devices"))
    _add_results(commands)
    _add_machine(commands)
    root.set_defaults(names=frozenset(commands.choices))
    return root


def command_names() -> frozenset[str]:
    names: frozenset[str] = create_parser().get_default("names")
    return names


def _add_training(commands: Any) -> None:
    command = commands.add_parser("train", help="train a model on a folder of images", allow_abbrev=False)
    arguments.add_train_flags(command)
    command.set_defaults(command=train.train)

    inspect.add_inspect(commands.add_parser("inspect", help="show how a folder is read as a dataset"))
    finders.add_finders(commands)
    advise.add_advise(commands)
    search.add_search(
        commands.add_parser("search", help="search for the best settings by many trials", allow_abbrev=False)
    )


def _add_runs(commands: Any) -> None:
    command = commands.add_parser("runs", help="list all runs, newest first")
    command.add_argument("--json", action="store_true", help="print one JSON object per line")
    command.set_defaults(command=listing.runs)

    command = commands.add_parser("attach", help="follow a run, or replay a past one")
    command.add_argument("run", help=arguments.RUN_ANYWHERE)
    command.add_argument("--json", action="store_true", help="print the event lines")
    command.set_defaults(command=watching.attach)

    remote.add_fetch(commands.add_parser("fetch", help="fetch a checkpoint or a log of a run on another machine"))

    for name, function in (("stop", watching.stop), ("pause", watching.pause)):
        command = commands.add_parser(name, help=f"{name} a run, and wait until its devices are free")
        command.add_argument("run", help=arguments.RUN_ANYWHERE)
        command.add_argument("--now", action="store_true", help="do not wait for the current step")
        command.set_defaults(command=function)

    watching.add_save(
        commands.add_parser("save", help="save a run's last state in another folder if its own disk can't take it")
    )

    command = commands.add_parser(
        "resume", help="resume a run in its folder, from its last checkpoint", allow_abbrev=False
    )
    command.add_argument("run", help=arguments.RUN)
    arguments.add_resume_flags(command)
    command.set_defaults(command=resume.resume)


def _add_results(commands: Any) -> None:
    export.add_export(
        commands.add_parser("export", help="write a run as one file, for a bug report or for TensorBoard")
    )
    evaluate.add_evaluate(
        commands.add_parser("evaluate", help="measure how good a run's model is, on its dataset or another")
    )
    explain.add_explain(commands.add_parser("explain", help="show which parts of images speak for a class"))
    review.add_review(
        commands.add_parser("review", help="find wrong labels, duplicates and the samples a model is worst at")
    )
    predict.add_predict(commands)
    convert.add_commands(commands)


def _add_machine(commands: Any) -> None:
    gpus.add_gpus(commands.add_parser("gpus", help="show this machine's devices"))

    command = commands.add_parser("catalogue", help="list tasks, models and strategies")
    command.add_argument("--json", action="store_true", help="print the complete catalogue as JSON")
    command.set_defaults(command=listing.catalogue)

    listing.add_recipes(commands.add_parser("recipes", help="list recipes (defaults for training), or show one"))
    cache.add_cache(commands.add_parser("cache", help="show, limit or clear the cache of decoded images"))
    desktop.add_desktop(
        commands.add_parser("desktop", help="add Footplate to the desktop's applications, or remove it")
    )
    hosts.add_hosts(commands.add_parser("hosts", help="list, add, check and remove the machines for runs"))
    submit.add_torchrun(commands)
    submit.add_submit(commands)
    hosts.add_node(commands.add_parser("node", help="serve a run on this machine; started by Footplate itself"))
    doctor.add_doctor(commands.add_parser("doctor", help="check this machine, and explain what won't work"))
