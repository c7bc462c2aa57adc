"""``footplate node``: a machine's part in a run; started by the run's supervisor and by ``footplate hosts``, not by people."""

from __future__ import annotations

import argparse
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
    if options.relay or options.files or options.send:
        return _tell_of_run(options)
    from engine.nodes import look, slurm

    if options.slurm is not None:
        return slurm.lead(Path(options.slurm))
    if options.look:
        return look.look(options.dataset, options.address)
    if options.listen is not None:
        return look.listen(options.address, options.listen)
    if options.reach is not None:
        return look.reach(options.address, options.reach)
    from engine.nodes.node import serve

    return serve()


def _tell_of_run(options: argparse.Namespace) -> int:
    """Tells another machine of a run of this one."""
    from engine.nodes import fetch, relay

    if options.relay:
        return relay.relay(options.relay)
    return fetch.list_files(options.files) if options.files else fetch.send_file(*options.send)
