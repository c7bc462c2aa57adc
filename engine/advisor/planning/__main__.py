"""Program ``python -m engine.advisor.planning``, which finds the best pipeline stages for a job's model.

The request on standard input is a `Job`. The process exits on an interrupt, and when its parent exits or closes the
output.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from engine.contract.devices import is_gpu
from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.contract.model_split import ModelSplit
from engine.processes.requests import serve_request
from engine.supervisor.environment import usable_cores
from engine.system import compile_cache


def _plan(job: Job, send: Callable[[Progress], object]) -> ModelSplit:
    """Set up this process like a worker of `job`, and divide its model into pipeline stages. Raises RequestError."""
    threads = max(1, usable_cores() // len(job.parallel.devices))
    # As in a worker, before torch is imported.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(filter(is_gpu, dict.fromkeys(job.parallel.devices)))
    compile_cache.use_private_folders()
    send(Progress(0.0, "Starting the measurement"))
    from engine.advisor.planning.planner import plan

    return plan(job, threads, lambda fraction, what: send(Progress(fraction, what)))


if __name__ == "__main__":
    serve_request("footplate-plan", Job, _plan)
