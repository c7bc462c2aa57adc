"""Runs the real supervisor with the tiny worker: ``python tiny_supervisor.py RUN_FOLDER [spawn] [tcp] [quick]``."""

from __future__ import annotations

import sys
from pathlib import Path

import engine.supervisor.supervisor as module
from engine.contract.runs import RunFolder
from engine.supervisor import ending, stdio
from engine.supervisor.supervisor import Supervisor

if __name__ == "__main__":
    stdio.make_forgiving()
    run = RunFolder(Path(sys.argv[1]))
    job = run.job()
    assert job is not None
    fork = sys.platform == "linux" and "spawn" not in sys.argv
    if "quick" in sys.argv:  # the same ladder, with shorter rungs
        ending.STOP_S = ending.TERM_S = 0.5
        module.STOP_S = module.SILENT_S = 0.5
    supervisor = Supervisor(run, job, worker="tiny_worker:run", modules=(), fork=fork, tcp="tcp" in sys.argv)
    sys.exit(supervisor.run_to_end())
