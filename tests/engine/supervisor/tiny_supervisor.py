"""Supervisor that runs `tiny_worker.py`: ``python tiny_supervisor.py RUN_FOLDER [spawn] [tcp] [quick] [patient]``.

- ``spawn`` starts workers as new processes instead of forking them.
- ``tcp`` also serves clients over TCP.
- ``quick`` shortens the timeouts for hanging and ending workers.
- ``patient`` waits longer for the first reading of the GPUs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine.processes import group, shutdown
from engine.processes.watchdog import LIMITS, Limits
from engine.runs.folder import RunFolder
from engine.supervisor import start_gate
from engine.supervisor.supervisor import Supervisor
from engine.system import stdio

QUICK = Limits(silent=1.5, silent_preparing=1.5, silent_warning=0.5, stuck=1.0, stuck_steps=2.0, first_step=1.5)

if __name__ == "__main__":
    stdio.ignore_output_errors()
    run = RunFolder(Path(sys.argv[1]))
    job = run.job()
    assert job is not None
    fork = sys.platform == "linux" and "spawn" not in sys.argv
    limits = LIMITS
    if "quick" in sys.argv:  # the same escalation with shorter timeouts
        shutdown.TERM_S = group.STOP_S = group.FAILED_S = group.LINGER_S = 0.5
        limits = QUICK
    if "patient" in sys.argv:  # a busy machine may start the sampler slowly, and a run doesn't wait for it for long
        start_gate.GPU_STATE_S = 60.0
    tcp = "tcp" in sys.argv
    supervisor = Supervisor(run, job, worker="tiny_worker:run", modules=(), fork=fork, tcp=tcp, limits=limits)
    sys.exit(supervisor.run_to_end())
