"""Import PyTorch once, then fork the supervisor of a real run for each line "SILENT STUCK RUN_FOLDER" on stdin.

SILENT and STUCK are the watchdog's limits in seconds, 0 for the defaults. Answers with the pid.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from engine.processes import imports
from engine.processes.watchdog import LIMITS, Limits
from engine.runs.folder import RunFolder
from engine.supervisor.supervisor import Supervisor
from engine.system import linux, stdio


def supervise(folder: Path, limits: Limits) -> int:
    os.setsid()
    stdio.redirect(folder / "supervisor.log")
    linux.release_inherited_files(set())
    run = RunFolder(folder)
    job = run.job()
    assert job is not None
    return Supervisor(run, job, modules=(), limits=limits).run_to_end()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nobody has to be waited for
    imports.import_all(imports.LIGHT + imports.DISTRIBUTED)
    for line in sys.stdin:
        silent, stuck, folder = line.rstrip("\n").split(" ", 2)
        limits = Limits(float(silent), float(silent), stuck=float(stuck)) if float(silent) else LIMITS
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 1
            try:
                code = supervise(Path(folder), limits)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
