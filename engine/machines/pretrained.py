"""The pretrained weights that a run begins with, on a machine that may lack them."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from engine.contract.catalogue import load_catalogue, weights_of
from engine.contract.events import EVENT, Failed
from engine.contract.job import Job
from engine.system import paths
from engine.system.format import exit_words


def fetch_weights(job: Job) -> str:
    """Has the weights of `job` fetched, or looked at where they are here already; why that failed, "" where it did
    not.
    """
    wanted = job.pretrained and not job.weights_file and not job.resume_from
    weights = weights_of(job, load_catalogue()) if wanted else None
    if weights is None:
        return ""
    done = subprocess.run(
        [sys.executable, "-m", "engine.models.fetch", msgspec.json.encode(weights).decode()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=paths.PACKAGES,
        check=False,
    )
    failed = [event.cause for event in map(EVENT.decode, done.stdout.splitlines()) if isinstance(event, Failed)]
    if failed or not done.returncode:
        return failed[0] if failed else ""
    return f"The process that downloads the pretrained weights {exit_words(done.returncode)}."
