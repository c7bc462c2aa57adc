"""Program ``python -m engine.advisor.search FOLDER``, which drives the search in a folder.

It does nothing if another process drives the search. SIGTERM and Ctrl+C pause the active trials and end the process.
After a second signal, it leaves the trials running.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path

from engine.contract.search import DRIVER_LOCK, DriverFile
from engine.runs.folder import process_start
from engine.runs.launch import Preloader
from engine.runs.searches import SearchFolder
from engine.system import linux, stdio
from engine.system.file_locks import open_file, try_lock

_REFUSED = 2


def main() -> int:
    """Drive the search in the folder that the first argument names, unless another process drives it already."""
    stdio.ignore_output_errors()
    faulthandler.enable(all_threads=False)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the search continues after its terminal is closed
    folder = SearchFolder(Path(sys.argv[1]))
    lock = open_file(folder.path / DRIVER_LOCK, os.O_CREAT)
    if not try_lock(lock):
        print(f"{folder.name} is already driven by another process.", file=sys.stderr)
        return _REFUSED
    linux.name_process("footplate-sea")
    folder.save_driver(DriverFile(pid=os.getpid(), start_time=process_start(os.getpid())))
    return _drive(folder)


def _drive(folder: SearchFolder) -> int:
    """Run the search in a folder to its end, and return the exit status. SIGINT and SIGTERM end the search."""
    search = folder.search()
    if search is None:
        print(f"{folder.path} holds no search that can be read.", file=sys.stderr)
        return _REFUSED
    preloader = Preloader()
    preloader.start()  # imports PyTorch while this process imports Optuna
    from engine.advisor.search.driver import Driver

    driver = Driver(folder, search, preloader)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: driver.end())
    driver.run()
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except Exception:
        traceback.print_exc()
        code = 1
    stdio.exit_now(code)
