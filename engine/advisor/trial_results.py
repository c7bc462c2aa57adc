"""Results of a trial's workers, which they write to files in the folder of the trial, one for each rank."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from engine.system.files import MAX_RESULT_BYTES, read_file

_Result = TypeVar("_Result")


def write_result(folder: str, rank: int, result: object) -> None:
    """Write the result of a rank to a file in the folder of the trial, for `take_results`."""
    Path(folder, f"result-{rank}.msgpack").write_bytes(msgspec.msgpack.encode(result))


def take_results(folder: Path, kind: type[_Result]) -> list[_Result]:
    """Read the results of all ranks, decoded to the type `kind`, in order of ranks. Delete their files."""
    results = []
    for file in sorted(folder.glob("result-*"), key=lambda path: int(path.stem.partition("-")[2])):
        results.append(msgspec.msgpack.decode(read_file(file, MAX_RESULT_BYTES), type=kind))
        file.unlink()
    return results


def delete_results(folder: Path) -> None:
    """Delete the results in a trial's folder, which some ranks may have written before another rank failed."""
    for file in folder.glob("result-*"):
        file.unlink()
