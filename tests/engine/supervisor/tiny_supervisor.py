"""Runs the real supervisor with the tiny worker: ``python tiny_supervisor.py RUN_FOLDER [spawn] [tcp]``."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.contract.runs import RunFolder
from engine.supervisor.supervisor import Supervisor

if __name__ == "__main__":
    run = RunFolder(Path(sys.argv[1]))
    job = run.job()
    assert job is not None
    fork = sys.platform == "linux" and "spawn" not in sys.argv
    supervisor = Supervisor(run, job, worker="tiny_worker:run", modules=(), fork=fork, tcp="tcp" in sys.argv)
    sys.exit(supervisor.run_to_end())
