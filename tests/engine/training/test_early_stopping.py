"""Patience for early stopping."""

from __future__ import annotations

from engine.contract.catalogue import Measure
from engine.training.callbacks.early_stopping import EarlyStopping

ACCURACY = Measure("top1", "Top-1 accuracy", higher_is_better=True, percent=True)
LOSS = Measure("loss", "Validation loss", higher_is_better=False)


def decisions(patience: int | None, measure: Measure, values: list[float]) -> list[bool]:
    stopping = EarlyStopping(patience, measure)
    found = []
    for value in values:
        stopping.add({measure.id: value})
        found.append(stopping.is_over)
    return found


def test_early_stopping_ends_when_patience_is_exhausted() -> None:
    assert decisions(2, ACCURACY, [0.5, 0.4, 0.6, 0.6, 0.5]) == [False, False, False, False, True]
    assert decisions(2, LOSS, [0.5, 0.4, 0.6, 0.6, 0.5]) == [False, False, False, True, True]
    assert not any(decisions(None, LOSS, [1.0] * 9))


def test_early_stopping_resumes_with_the_same_metric() -> None:
    before = EarlyStopping(None, ACCURACY)
    for value in (0.7, 0.6, 0.65):
        before.add({"top1": value, "loss": 1.0})
    after = EarlyStopping(3, ACCURACY)
    after.load_state_dict(before.state_dict())
    assert not after.is_over
    after.add({"loss": 0.7})
    assert after.is_over
    assert "not improved on 70.0% for 3 epochs" in after.explanation
    other = EarlyStopping(1, LOSS)
    other.load_state_dict(before.state_dict())
    assert other.state_dict() == EarlyStopping(1, LOSS).state_dict()
    other.load_state_dict({})
    assert not other.is_over
    score = EarlyStopping(1, Measure("psnr", "PSNR", higher_is_better=True))
    score.add({"psnr": 2.5})
    assert "2.5" in score.explanation
    assert "%" not in score.explanation
