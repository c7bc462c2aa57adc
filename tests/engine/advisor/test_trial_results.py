"""Files with the results of a trial's ranks."""

from __future__ import annotations

from pathlib import Path

from engine.advisor.batch_finder import merge_probes
from engine.advisor.batch_search import Probe
from engine.advisor.trial_results import delete_results, take_results, write_result


def test_results_are_in_order_of_ranks(tmp_path: Path) -> None:
    for rank in range(11):
        write_result(str(tmp_path), rank, Probe(float(rank), {"memory": (rank, 100)}))
    merged = merge_probes(take_results(tmp_path, Probe))
    assert (merged.images_per_second, merged.memory["memory of rank 2"]) == (10.0, (2, 100))
    assert not list(tmp_path.iterdir())


def test_delete_results_leaves_other_files(tmp_path: Path) -> None:
    write_result(str(tmp_path), 0, Probe(1.0, {}))
    (tmp_path / "request.msgpack").touch()
    delete_results(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["request.msgpack"]
