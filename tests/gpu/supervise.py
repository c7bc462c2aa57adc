"""Supervisor of a run whose ranks all use one GPU: `python -m tests.gpu.supervise RUN_FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.runs.folder import RunFolder
from engine.supervisor.supervisor import Supervisor
from engine.system import stdio

if __name__ == "__main__":
    stdio.ignore_output_errors()
    run = RunFolder(Path(sys.argv[1]))
    job = run.job()
    assert job is not None
    sys.exit(Supervisor(run, job, worker="tests.gpu.hooks:run_on_one_gpu").run_to_end())
