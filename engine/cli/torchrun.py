"""``footplate torchrun``: the lines that train a job by PyTorch's own launcher."""

from __future__ import annotations

import argparse
from typing import Any

from engine.cli import arguments
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.terminal import say
from engine.cli.train import judge, tell
from engine.contract.problems import errors
from engine.contract.torchrun import torchrun_lines, torchrun_text


def add_torchrun(commands: Any) -> None:
    parser = commands.add_parser(
        "torchrun", help="print the lines of PyTorch's launcher that train a job", allow_abbrev=False
    )
    arguments.add_torchrun(parser)
    parser.set_defaults(command=torchrun)


def torchrun(options: argparse.Namespace) -> int:
    """Prints a line for each machine, which is to be started there."""
    job, found = judge(options)
    lines: dict[str, str] = {}
    if job is not None and not errors(found):
        lines, wrong = torchrun_lines(job)
        found += wrong
    tell(found)
    if not lines:
        return BAD_REQUEST
    say(*torchrun_text(lines).splitlines())
    return COMPLETED
