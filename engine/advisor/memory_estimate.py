"""Program ``python -m engine.advisor.memory_estimate``, which estimates a job's memory per device.

The request on standard input is a `Job`. The estimate needs no training step. It is based on a forward pass with fake
tensors, as in the advice on strategies.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from engine.contract.advice import MemoryEstimate
from engine.contract.devices import CPU, is_gpu
from engine.contract.job import Job
from engine.processes.requests import RequestError, serve_request


def estimate_memory(job: Job, _send: Callable[[object], object]) -> MemoryEstimate:
    """Estimate the memory for `job` on one device or CPU worker. Raises RequestError if its model can't be built.

    Call it in a separate process that has not imported torch, since it changes the environment.
    `_send`, which `serve_request` passes, is not used.
    """
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before torch is imported
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(filter(is_gpu, dict.fromkeys(job.parallel.devices)))
    import psutil
    import torch

    from engine.advisor.advice.estimates import UNCALIBRATED, estimate_bytes
    from engine.advisor.advice.footprint_worker import measure_footprint
    from engine.data.datasets.images import DatasetError
    from engine.models.base import TaskError
    from engine.strategies import STRATEGIES

    torch.set_num_threads(1)
    base_bytes = psutil.Process().memory_info().rss if CPU in job.parallel.devices else 0
    try:
        footprint = measure_footprint(job.with_fields(pretrained=False, weights_file=""), base_bytes, ())
    except DatasetError as error:
        raise RequestError(*error.problems) from error
    except TaskError as error:
        raise RequestError(error.problem) from error
    return MemoryEstimate(estimate_bytes(job, STRATEGIES[job.resolved_strategy].entry, footprint, UNCALIBRATED))


if __name__ == "__main__":
    serve_request("footplate-estimate", Job, estimate_memory)
