"""``python -m engine.advisor.planning``: reads a job as JSON, prints `PlanningMessage` lines, the cut or a problem
last.
Ends quietly when interrupted, when nobody reads any more, and with its parent.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from engine.contract.devices import is_gpu
from engine.contract.job import Job
from engine.contract.planning import PlanningDone, PlanningFailed, PlanningMessage, PlanningProgress
from engine.contract.problems import Problem
from engine.supervisor.environment import usable_cores
from engine.system import compile_cache, linux


def main() -> int:
    linux.signal_at_parents_death(signal.SIGKILL)
    linux.name_process("footplate-plan")
    answers = _own_output()

    def say(message: PlanningMessage) -> None:
        answers.write(msgspec.json.encode(message) + b"\n")
        answers.flush()

    try:
        say(_answer(sys.stdin.buffer.read(), say))
    except KeyboardInterrupt:
        os._exit(130)  # at once: neither waits for threads nor flushes into a closed pipe
    except BrokenPipeError:
        os._exit(0)
    return 0


def _answer(order: bytes, say: Callable[[PlanningMessage], None]) -> PlanningDone | PlanningFailed:
    try:
        job = msgspec.json.decode(order, type=Job)
    except msgspec.DecodeError as error:
        return PlanningFailed(Problem("job", f"Invalid job: {error}.", "Pass one as JSON."))
    threads = max(1, usable_cores() // len(job.devices))
    # As in a worker, and before torch is imported.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(filter(is_gpu, dict.fromkeys(job.devices)))
    compile_cache.use_private_folders()
    say(PlanningProgress(0.0, "Starting the measurement"))
    from engine.advisor.planning.planner import Refused, plan

    try:
        return PlanningDone(plan(job, threads, lambda fraction, what: say(PlanningProgress(fraction, what))))
    except Refused as refused:
        return PlanningFailed(refused.problem)


def _own_output() -> BinaryIO:
    """The standard output, for answers alone: what a model file prints goes to the standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    sys.exit(main())
