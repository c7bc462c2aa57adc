"""``footplate runs`` and ``catalogue``: what there is."""

from __future__ import annotations

import argparse
import sys

import msgspec

from engine.cli.exit_codes import COMPLETED
from engine.cli.table import table
from engine.cli.terminal import say
from engine.contract.catalogue import load_catalogue
from engine.contract.protocol import ENCODE
from engine.runs.folder import ENDED, RunFolder, RunSummary
from engine.runs.index import RunIndex
from engine.runs.metrics import best_words
from engine.runs.slurm import refresh
from engine.system import paths
from engine.system.format import duration


def runs(options: argparse.Namespace) -> int:
    """Lists all runs, newest first."""
    index = RunIndex()
    summaries = list(index.summaries(lambda run_id, error: say(f"{run_id} can't be read: {error}", to=sys.stderr)))
    if refresh(RunFolder(run.folder) for run in summaries if run.slurm and run.state not in ENDED):
        summaries = list(index.summaries())
    if options.json:
        for summary in summaries:
            say(ENCODE.encode(summary).decode())
    elif summaries:
        head = ("RUN", "NAME", "MODEL", "STRATEGY", "DEVICES", "BEST", "TIME", "STATE", "TAGS")
        say(*table(head, [_run_row(summary) for summary in summaries]))
    else:
        say(f"There are no runs in {paths.runs_folder()} yet. `footplate train DATASET` makes one.")
    return COMPLETED


def _run_row(run: RunSummary) -> tuple[str, ...]:
    devices = ",".join(dict.fromkeys(device[:12] for device in run.devices))
    if len(run.devices) > 1:
        devices += f" x{len(run.devices)}"
    model = run.model.rsplit("/", maxsplit=1)[-1]
    name = f"{run.name or '–'}{' ★' if run.favourite else ''}"
    time, tags = duration(run.seconds), ", ".join(run.tags)
    state = f"{run.state} ({run.slurm})" if run.slurm and run.state not in ENDED else run.state
    return (run.run_id, name, model, run.strategy, devices, best_words(run), time, state, tags)


def catalogue(options: argparse.Namespace) -> int:
    """Lists tasks, models and strategies."""
    entries = load_catalogue()
    if options.json:
        say(*msgspec.json.format(ENCODE.encode(entries), indent=1).decode().split("\n"))
        return COMPLETED
    say(*table(("TASK", "TITLE"), [(task.id, task.title) for task in entries.tasks]))
    say("")
    rows = [(entry.id, entry.title, entry.summary) for entry in entries.strategies]
    say(*table(("STRATEGY", "TITLE", "WHAT IT DOES"), rows))
    say("")
    models = [
        (
            m.id,
            m.family,
            f"{m.parameters / 1e6:.1f} M",
            f"{m.image_size} px" if m.image_size else "–",
            "yes" if m.weights else "–",
            str(len(m.split_points)) if m.split_points else m.uncuttable,
        )
        for m in entries.models
    ]
    say(*table(("MODEL", "FAMILY", "PARAMETERS", "IMAGES", "PRETRAINED", "CUT POINTS"), models))
    return COMPLETED
