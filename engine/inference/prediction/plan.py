"""Files in the work folder of a request: input for the workers, and the facts that they report."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from msgspec import structs

from engine.contract.images import LegendEntry
from engine.contract.inference.prediction import PredictRequest
from engine.data.files import Files, Listing
from engine.data.splits import Labels
from engine.inference.prediction.sources import Kind, Sources
from engine.system import paths
from engine.system.files import MAX_RESULT_BYTES, open_file, read_file

_PLAN, _MODEL, _STATE = "plan.json", "model.json", "state.json"
LOCK = "lock"
"""Name of the lock file, which is locked by the process that writes to the folder."""
_FILES, _NAMES, _REMAINING = "files", "names", "remaining.npy"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a prediction, which its workers read.

    Attributes:
        samples: Number of all samples, including completed ones.
        start: Number of times that the work was started, including this time.
    """

    kind: Kind
    samples: int
    start: int


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the model for the summary. A worker reports them, since only workers load the model."""

    classes: tuple[str, ...]
    sha256: str
    legend: tuple[LegendEntry, ...]


class RequestState(msgspec.Struct, frozen=True, kw_only=True):
    """State that identifies the results in a folder: request, checkpoint hash and sources."""

    request: PredictRequest
    sha256: str
    sources: str

    @classmethod
    def create(cls, request: PredictRequest, sha256: str, sources: Sources) -> RequestState:
        """Create the state for a request, without the devices, the batch size and the folder, which don't affect results.

        `sha256` is the hash of the checkpoint file.
        """
        request = structs.replace(request, devices=(), batch_size=None, out="")
        return cls(request=request, sha256=sha256, sources=sources.identity)


class PlanFolder:
    """Access to the files in the work folder of a prediction request. All methods may raise OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write_plan(self, plan: Plan, sources: Sources, remaining: Labels) -> None:
        """Write the plan, the sources, and the indices `remaining` (int64 [n]) of the samples without a result."""
        for name, files in ((_FILES, sources.files), (_NAMES, sources.names)):
            paths.write_atomically(self.folder / name, Listing.of("", list(files)).names)
        with (self.folder / _REMAINING).open("wb") as stream:
            np.save(stream, remaining)
        paths.write_atomically(self.folder / _PLAN, msgspec.json.encode(plan))

    def read_plan(self) -> Plan:
        """Read the plan of the prediction that the workers follow."""
        return msgspec.json.decode(read_file(self.folder / _PLAN, MAX_RESULT_BYTES), type=Plan)

    def read_sources(self) -> Sources:
        """Read the files to predict, and the names of their results."""
        return Sources(self.read_plan().kind, *(self._read_names(name) for name in (_FILES, _NAMES)))

    def read_remaining(self) -> Labels:
        """Read the indices of the samples to process, int64 [n]."""
        with open_file(self.folder / _REMAINING) as stream:
            remaining: Labels = np.load(stream)
        return remaining

    def write_model(self, facts: ModelFacts) -> None:
        paths.write_atomically(self.folder / _MODEL, msgspec.json.encode(facts))

    def read_model(self) -> ModelFacts:
        """Read the facts about the model, such as its classes, that a worker has reported."""
        return msgspec.json.decode(read_file(self.folder / _MODEL, MAX_RESULT_BYTES), type=ModelFacts)

    @property
    def has_model(self) -> bool:
        """True if a worker has reported facts about the model."""
        return (self.folder / _MODEL).is_file()

    def write_state(self, state: RequestState) -> None:
        paths.write_atomically(self.folder / _STATE, msgspec.json.encode(state))

    def read_state(self) -> RequestState | None:
        """Return the saved state of the request that the results in the folder were made for.

        Returns None if there is no such file, as in a new folder, or if it can't be read.
        """
        try:
            return msgspec.json.decode(read_file(self.folder / _STATE, MAX_RESULT_BYTES), type=RequestState)
        except (OSError, msgspec.DecodeError):
            return None

    def clear(self) -> None:
        """Delete all files in the work folder except the state and the lock."""
        for path in self.folder.iterdir():
            if path.name not in (_STATE, LOCK):
                path.unlink(missing_ok=True)

    def _read_names(self, name: str) -> Files:
        """Read the paths or names in the file `name` of the folder, which separates them by zero bytes."""
        content = read_file(self.folder / name, MAX_RESULT_BYTES)
        return Files.of([Listing("", content, content.count(b"\0"))])
