"""``python -m engine.advisor.planning``: read a job as JSON, print `PlanningMessage` lines, the cut or a problem last.

It ends when interrupted, and with its parent or the reader of its output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import msgspec

from engine.contract.cut import PlanningDone, PlanningFailed, PlanningMessage, PlanningProgress
from engine.contract.devices import is_gpu
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.supervisor.environment import usable_cores
from engine.system import compile_cache
from engine.system.child_work import serve_order


def main() -> int:
    return serve_order("footplate-plan", _answer)


def _answer(order: bytes, send: Callable[[PlanningMessage], None]) -> PlanningDone | PlanningFailed:
    try:
        job = msgspec.json.decode(order, type=Job)
    except msgspec.DecodeError as error:
        return PlanningFailed(Problem("job", f"Invalid job: {error}.", "Pass one as JSON."))
    threads = max(1, usable_cores() // len(job.parallel.devices))
    # As in a worker, before torch is imported.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(filter(is_gpu, dict.fromkeys(job.parallel.devices)))
    compile_cache.use_private_folders()
    send(PlanningProgress(0.0, "Starting the measurement"))
    from engine.advisor.planning.planner import Refused, plan

    try:
        return PlanningDone(plan(job, threads, lambda fraction, what: send(PlanningProgress(fraction, what))))
    except Refused as refused:
        return PlanningFailed(refused.problem)


if __name__ == "__main__":
    sys.exit(main())
