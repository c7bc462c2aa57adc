"""A model explained in the test's own process, as its worker does it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from engine.contract.inference.explanation import EXPLANATION_FILE, ExplainOrder, Explanation, decode_explanation
from engine.contract.worker import WorkerSpec
from engine.inference.explanation.explain import explain_images
from engine.inference.trained_model import load
from engine.inference.worker import Share
from engine.training.report import Reporter
from tests.support.trained_runs import Trained


def explained(of: Trained, out: Path, *images: Path, **values: Any) -> Explanation:
    """Explain the images by the run's last checkpoint, and write the results into `out`."""
    out.mkdir(exist_ok=True)
    order = ExplainOrder(run=str(of.run.path), checkpoint="last", paths=tuple(map(str, images)), out=str(out), **values)
    worker_end, supervisor_end = socket.socketpair()
    reporter = Reporter(worker_end, 0, on_end=lambda: None)
    try:
        spec = WorkerSpec(
            run_folder=str(out), job=of.job, rank=0, world_size=1, devices=("cpu",), rendezvous="", threads=1
        )
        explain_images(order, load(of.run, "last"), Share(spec, reporter))
    finally:
        reporter.close()
        supervisor_end.close()
        worker_end.close()
    return decode_explanation((out / EXPLANATION_FILE).read_bytes())
