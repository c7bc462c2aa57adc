"""Read the entries of installed plug-ins, which supplement the catalogue, for windows and commands."""

from __future__ import annotations

import sys

import msgspec

from engine.contract.catalogue import Supplement, load_catalogue, supplement_file
from engine.contract.problems import Problem
from engine.system import paths
from engine.system.children import run_child

ARGUMENTS = ("-m", "engine.catalogue", "--plugins")
"""Arguments of the Python process that writes the catalogue's supplement, which holds the entries of plug-ins."""


def refresh_supplement(*, force: bool = False) -> None:
    """Write the catalogue's supplement, the file with the entries of plug-ins, in a child process.

    Nothing is done if there are no plug-ins, or if the file exists and `force` is False. Raises OSError if the file
    can't be written.
    """
    file = supplement_file()
    if file is None or (file.exists() and not force):
        return
    print("Reading the installed plug-ins …", file=sys.stderr, flush=True)
    file.unlink(missing_ok=True)
    done = run_child([sys.executable, *ARGUMENTS], timeout_s=None, cwd=str(paths.PACKAGES))
    load_catalogue.cache_clear()
    if done.returncode or not file.exists():
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        reason = errors[-1] if errors else f"exit code {done.returncode}"
        problem = Problem("model", f"The plug-ins can't be used: {reason}.", "Run `footplate doctor`.", "warning")
        paths.write_atomically(
            paths.make_private_folder(file.parent) / file.name, msgspec.json.encode(Supplement(problems=(problem,)))
        )
