"""Types that msgspec must prepare at import, because threads decode files with them."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import gc
from engine.contract.devices import Snapshot
from engine.contract.inference.conversion import ConversionResult
from engine.contract.nodes import ConnectionTestResult, NodeFacts
from engine.machines import host_checks, slurm
from engine.runs.evaluations import Curves, Evaluation, Resamples, Samples
from engine.runs.folder import SupervisorFile
from engine.runs.notes import RunNotes
from engine.runs.queue.tickets import Ticket
from engine.runs.searches import DriverFile, Search, SearchState, Trial
from engine.runs.slurm_job import SlurmJob

kinds = [
    ConversionResult, Curves, DriverFile, Evaluation, ConnectionTestResult, NodeFacts, Resamples, RunNotes, Samples, Search, SearchState,
    SlurmJob, Snapshot, SupervisorFile, Ticket, Trial,
]
for kind in kinds:
    if "StructInfo" not in [type(referent).__name__ for referent in gc.get_referents(kind)]:
        print(kind.__name__)
"""


def test_types_of_files_are_prepared_at_import() -> None:
    """Check that the types are prepared, because msgspec crashes if two threads prepare the same type at once."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == ""
