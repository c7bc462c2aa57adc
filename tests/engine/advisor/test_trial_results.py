"""Files with the results of a trial's ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.advisor.advice.trial_worker import _backward_fraction
from engine.advisor.batch_finder import _compute_size_unit, merge_probes
from engine.advisor.batch_search import Probe
from engine.advisor.trial_results import delete_results, take_results, write_result
from engine.contract.job import Job
from engine.strategies.stopwatch import Times


def test_results_are_in_order_of_ranks(tmp_path: Path) -> None:
    for rank in range(11):
        write_result(str(tmp_path), rank, Probe(float(rank), {"memory": (rank, 100)}))
    merged = merge_probes(take_results(tmp_path, Probe))
    assert (merged.images_per_second, merged.memory["memory of rank 2"]) == (10.0, (2, 100))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("strategy", "devices", "fields", "unit"),
    [
        ("single", 1, {"accumulation": 3}, 3),
        ("ddp", 4, {"accumulation": 3}, 12),
        ("tp", 4, {"accumulation": 3}, 3),
        ("pipeline", 2, {"microbatches": 5}, 5),
        ("ddp_pipeline", 4, {"microbatches": 5}, 10),
    ],
)
def test_batch_sizes_are_divisible_by_what_splits_a_batch(
    strategy: str, devices: int, fields: dict[str, int], unit: int
) -> None:
    job = Job.from_fields(strategy=strategy, devices=("cpu",) * devices, **fields)
    assert _compute_size_unit(job) == unit


def test_backward_fraction_excludes_other_parts() -> None:
    assert _backward_fraction(Times(9, 1.0, {"forward": 0.1, "backward": 0.3, "data": 0.6})) == pytest.approx(0.75)
    assert _backward_fraction(Times(9, 1.0, {"backward": 0.3})) is None


def test_delete_results_leaves_other_files(tmp_path: Path) -> None:
    write_result(str(tmp_path), 0, Probe(1.0, {}))
    (tmp_path / "request.msgpack").touch()
    delete_results(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["request.msgpack"]
