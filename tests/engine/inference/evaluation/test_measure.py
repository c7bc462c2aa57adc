"""Results of the workers of an evaluation, merged in the order of the samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.contract.inference.evaluation import SkippedSample
from engine.inference.evaluation.measure import WorkerResults, merge_results, name_results_file
from engine.tasks.analysis import SampleColumns


@pytest.mark.parametrize("without_losses", [False, True])
def test_results_of_workers_are_merged_in_order(tmp_path: Path, without_losses: bool) -> None:
    paths = [tmp_path / name_results_file(rank) for rank in range(3)]
    for path, batches in zip(paths, ([(4, 1), (3,)], [], [(0,), (2, 5)]), strict=True):
        results = WorkerResults(skipped=[(f"{path.name}.png", "gone")])
        for number, samples in enumerate(batches):
            levels = torch.tensor(samples) / 10
            shares = torch.stack([levels, 1 - levels], 1).numpy()
            columns = SampleColumns(
                levels.tolist(),
                [(each,) for each in samples],
                [(each, each) for each in samples],
                (levels / 2).tolist(),
                shares,
            )
            results.add(samples, None if without_losses and number == 0 else 2 * levels, columns)
        results.write(path)
    merged = merge_results(paths)
    assert merged.samples.tolist() == [0, 1, 2, 3, 4, 5]
    levels = np.arange(6) / 10
    assert (merged.losses is None) == without_losses
    if merged.losses is not None:
        assert merged.losses == pytest.approx(2 * levels)
    assert merged.columns.correct == pytest.approx(levels)
    assert merged.columns.true == [(each,) for each in range(6)]
    assert merged.columns.predicted == [(each, each) for each in range(6)]
    assert merged.columns.confidence == pytest.approx(levels / 2)
    assert merged.columns.probabilities == pytest.approx(np.stack([levels, 1 - levels], 1))
    assert merged.skipped == tuple(SkippedSample(path=f"results-{rank}.pt.png", reason="gone") for rank in range(3))
