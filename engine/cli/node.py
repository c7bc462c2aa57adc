"""``footplate node``: a machine's part in a run; started by the run's supervisor and by ``footplate hosts``, not by
people.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def add_node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--look", action="store_true", help="print what this machine has")
    parser.add_argument("--dataset", default="", help="with --look: a dataset to compare")
    parser.add_argument("--address", default="", help="the address that other machines reach this one by")
    parser.add_argument("--listen", type=int, metavar="PORT", help="answer others for some seconds")
    parser.add_argument("--reach", type=int, metavar="PORT", help="see whether another machine answers")
    parser.add_argument("--slurm", metavar="FOLDER", help="supervise a run in the batch step of its SLURM job")
    parser.add_argument("--relay", metavar="RUN", help="tell another machine of a run of this one")
    parser.add_argument("--files", metavar="RUN", help="list the files of a run that can be fetched")
    parser.add_argument("--send", nargs=2, metavar=("RUN", "FILE"), help="write a file of a run to standard output")
    parser.set_defaults(command=node)


def node(options: argparse.Namespace) -> int:
    """Does one of these, or serves a run over its standard input and output."""
    from engine.machines import fetch, probe, relay, slurm
    from engine.machines.node import serve

    asked: list[tuple[object, Callable[[], int]]] = [
        (options.slurm, lambda: slurm.supervise_slurm(Path(options.slurm))),
        (options.look, lambda: probe.print_facts(options.dataset, options.address)),
        (options.listen, lambda: probe.listen(options.address, options.listen)),
        (options.reach, lambda: probe.reach(options.address, options.reach)),
        (options.relay, lambda: relay.relay(options.relay)),
        (options.files, lambda: fetch.list_files(options.files)),
        (options.send, lambda: fetch.send_file(*options.send)),
    ]
    return next((do for what, do in asked if what), serve)()
