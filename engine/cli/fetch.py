"""``footplate fetch``: files of a run on another machine."""

from __future__ import annotations

import argparse
import sys

from engine.cli.exit_codes import BAD_REQUEST, COMPLETED, FAILED
from engine.cli.following import split
from engine.cli.terminal import Line, say
from engine.machines.fetch import NotFetched, fetch
from engine.system.format import size


def add_fetch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="HOST:RUN", help="a machine, and the run as it is called there")
    parser.add_argument("file", nargs="?", default="checkpoints/best.pt", help="by default checkpoints/best.pt")
    parser.set_defaults(command=fetch_file)


def fetch_file(options: argparse.Namespace) -> int:
    """Fetches a file, or the rest of one that has come in part."""
    where, name = split(options.run)
    if where is None:
        say(f"footplate: “{options.run}” does not begin with one of your hosts and a colon.", to=sys.stderr)
        return BAD_REQUEST
    line = Line(sys.stderr)

    def tell(here: int, of: int) -> None:
        line.show(f"{size(here)} of {size(of)}")

    try:
        fetched = fetch(where, name, options.file, tell)
        line.clear()
        say(str(fetched))
    except (NotFetched, OSError) as error:
        line.clear()
        say(f"footplate: {error}", to=sys.stderr)
        return FAILED
    return COMPLETED
