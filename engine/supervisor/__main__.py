"""Program ``python -m engine.supervisor RUN_FOLDER``, which supervises a run. With ``--preload``, see `preload`."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.supervisor.execution import supervise
from engine.supervisor.preload import serve
from engine.system.stdio import exit_now


def main() -> int:
    """Supervise the run in the given folder to its end, or fork supervisors on request. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine.supervisor", description=__doc__)
    parser.add_argument("run_folder", nargs="?", help="the run folder, which contains job.toml")
    parser.add_argument("--preload", action="store_true", help="import PyTorch, then fork a supervisor per folder")
    options = parser.parse_args()
    if options.preload:
        return serve()
    if options.run_folder is None:
        parser.error("the run folder is missing")
    return supervise(Path(options.run_folder))


if __name__ == "__main__":
    exit_now(main())
