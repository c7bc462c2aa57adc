"""Process that imports PyTorch once and forks a supervisor for each `StartRequest` that it reads from standard input.

It answers each request with the supervisor's process id. The supervisors outlive this process.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from pathlib import Path

import msgspec

from engine.processes import group, imports, shutdown
from engine.processes.watchdog import Limits
from engine.supervisor.execution import supervise
from engine.supervisor.supervisor import Supervisor
from engine.system import linux, stdio
from engine.training.checkpointing import checkpointer


class StartRequest(msgspec.Struct):
    """Request to start the supervisor of the run in `folder`, with `environment` as its environment variables.

    `limits` replaces the limits of the watchdog, `deadline_s` replaces each deadline for the shutdown of a worker, and
    `save_again_s` replaces the time for which saving the final state is retried. None keeps the defaults.
    """

    folder: str
    environment: dict[str, str]
    limits: Limits | None = None
    deadline_s: float | None = None
    save_again_s: float | None = None


def _supervise(request: StartRequest) -> int:
    os.setsid()
    os.environ.clear()
    os.environ.update(request.environment)
    stdio.redirect_output(Path(request.folder) / "supervisor.log")
    linux.release_inherited_files(set())
    if request.limits is not None:
        defaults = Supervisor.__init__.__kwdefaults__
        assert defaults is not None
        defaults["limits"] = request.limits
    if request.deadline_s is not None:
        shutdown.TERM_S = group.STOP_S = group.FAILED_S = request.deadline_s
    if request.save_again_s is not None:
        checkpointer.RETRY_COMPLETED_S = checkpointer.RETRY_STOPPED_S = request.save_again_s
        checkpointer.RETRY_INTERVAL_S = 0.05
    return supervise(Path(request.folder), modules=())


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children don't have to be awaited
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # intended crashes need no core dump
    imports.import_all(imports.BASIC + imports.DISTRIBUTED)
    for line in sys.stdin:
        request = msgspec.json.decode(line, type=StartRequest)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 1
            try:
                code = _supervise(request)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # libraries loaded by PyTorch would print errors at a regular exit
