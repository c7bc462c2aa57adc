"""Collect facts about a machine before it trains, to compare it with other machines."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from engine.checks.node_checks import digest_inputs, versions
from engine.contract.job import Job
from engine.contract.nodes import NodeFacts
from engine.contract.protocol import ENCODE
from engine.machines import addresses
from engine.machines.devices import snapshot
from engine.system import paths


def print_facts(dataset: str, address: str) -> int:
    """Print facts about this machine (`NodeFacts`), such as versions and GPUs, and return the exit code.

    If `dataset` is not "", they include its digest. `address` is the address of this machine, or "" to detect it.
    """
    local_address, remote_address = addresses.connection_addresses()
    problem, driver = "", ""
    gpus: tuple[str, ...] = ()
    try:
        if address or local_address:
            addresses.interface_of(address or local_address)
    except ValueError as error:
        problem = str(error)
    try:
        state = snapshot()
    except (OSError, subprocess.SubprocessError) as error:
        problem = problem or f"Its devices could not be read: {error}"
    else:
        gpus, driver = tuple(gpu.name for gpu in state.gpus), state.nvml.driver_version or ""
    facts = NodeFacts(
        versions=versions(),
        inputs=digest_inputs(Job.from_fields(dataset=dataset)) if dataset else {},
        address=address or local_address,
        client_address=remote_address,
        infiniband=addresses.has_infiniband(),
        free_bytes=shutil.disk_usage(_find_existing_folder(paths.home())).free,
        gpus=gpus,
        driver=driver,
        problem=problem,
        time=time.time(),
    )
    print(ENCODE.encode(facts).decode(), flush=True)
    return 0


def _find_existing_folder(folder: Path) -> Path:
    """Return `folder`, or its closest parent that exists."""
    return next(each for each in (folder, *folder.parents) if each.exists())
