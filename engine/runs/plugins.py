"""Has the engine look at newly installed plug-ins, so that windows and commands list what they add."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from engine.contract.catalogue import Supplement, load_catalogue, supplement_file
from engine.contract.problems import Problem
from engine.system import paths

ARGUMENTS = ("-m", "engine.catalogue", "--plugins")
"""What Python is given to write the supplement of the catalogue."""


def see_plugins(*, afresh: bool = False) -> None:
    """Waits until the catalogue's supplement is there, which a child process writes if it is not; `afresh`, in any
    case. Without plug-ins this costs nothing. Raises OSError where the cache cannot be written.
    """
    file = supplement_file()
    if file is None or (file.exists() and not afresh):
        return
    print("Looking at the installed plug-ins …", file=sys.stderr, flush=True)
    file.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, *ARGUMENTS], cwd=paths.PACKAGES, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    load_catalogue.cache_clear()
    if done.returncode or not file.exists():
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = said[-1] if said else f"exit code {done.returncode}"
        problem = Problem("model", f"The plug-ins can't be used: {why}.", "Run `footplate doctor`.", "warning")
        paths.write_atomically(
            paths.private_folder(file.parent) / file.name, msgspec.json.encode(Supplement(problems=(problem,)))
        )
