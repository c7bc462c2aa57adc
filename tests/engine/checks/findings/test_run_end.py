"""Verdicts on ended runs, for synthetic histories of losses and metrics. Noise alone must seldom look like a trend."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checks.findings.history import History
from engine.checks.findings.run_end import MIN_EPOCHS, find_verdict
from engine.contract.catalogue import load_catalogue
from engine.contract.events import ClassMeasures, Outcome, Planned, StepMetrics, Validation, Verdict
from engine.contract.job import FIELDS, Job, job_from_values

STEPS = 10


def plan(classes: int = 10, from_step: int = 0, val: int = 1000) -> Planned:
    return Planned(
        epochs=20, from_step=from_step, steps_per_epoch=STEPS, train_images=320, val_images=val, image_size=28,
        classes=tuple(f"class {number}" for number in range(classes)), parameters=1, trainable_parameters=1,
    )  # fmt: skip


def epoch(history: History, number: int, loss: float, accuracy: float | None, measures: dict[str, float]) -> None:
    for step in ((number - 1) * STEPS + STEPS // 2, number * STEPS):
        history.add(
            StepMetrics(
                epoch=number, step=step, loss=loss, accuracy=accuracy, learning_rate=0.01, images_per_second=1,
                data_wait_s=0, compute_s=0,
            )
        )  # fmt: skip
    history.add(Validation(epoch=number, step=number * STEPS, measures=measures, images=1000, seconds=1))


def find_verdict_on(
    losses: list[float], trained: list[float], *, top1: list[float] | None = None, accuracy: float | None = 0.9,
    outcome: Outcome = "completed", classes: int = 10, every: int = 1, val: int = 1000, **fields: Any,
) -> Verdict | None:  # fmt: skip
    """Return the verdict on a run of a classifier.

    The lists have a value per validated epoch: validation losses, training losses, and validation accuracies (`top1`).
    Each `every`th epoch is validated, with `val` samples. `accuracy` is the training accuracy, and `fields` override
    fields of the job.
    """
    history = History()
    history.add(plan(classes, val=val))
    for number, (loss, training) in enumerate(zip(losses, trained, strict=True), 1):
        right = top1[number - 1] if top1 is not None else 1 - loss / 10
        epoch(history, every * number, training, accuracy, {"top1": right, "loss": loss})
    return find_verdict(history, Job.from_fields(**({"epochs": every * len(losses)} | fields)), outcome)


def make_decaying_losses(epochs: int) -> list[float]:
    return [0.3 + 2 * 0.8**number for number in range(epochs)]


def test_falling_loss_asks_for_more_epochs() -> None:
    losses = make_decaying_losses(12)
    found = find_verdict_on(losses, losses)
    assert found is not None
    assert found.code == "falling"
    more = int(found.figures["epochs_more"])
    assert found.sentence == f"Validation loss was still falling by 9% per epoch: train for {more} more epochs."
    assert found.changes == {"epochs": 12 + more}
    after = make_decaying_losses(12 + more + 1)
    assert 1 - after[-1] / after[-2] < 0.02, "little gain remains by then"
    assert 1 - after[11] / after[10] > 0.05


def test_worthwhile_epochs_follow_from_the_last_gains() -> None:
    slow = make_decaying_losses(12)
    fast = [slow[0] + 8 * 0.3**number for number in range(6)]
    found, expected = (find_verdict_on(losses, losses, epochs=12) for losses in (fast + slow, slow))
    assert found is not None
    assert expected is not None
    assert found.figures["epochs_more"] == expected.figures["epochs_more"]


OVERFITTED = [1.0, 0.7, 0.5, 0.45, 0.5, 0.56, 0.6, 0.66], [1.0, 0.6, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05]


@pytest.mark.parametrize("every", [1, 3])
def test_overfitting_names_epoch_and_figures(every: int) -> None:
    found = find_verdict_on(*OVERFITTED, every=every)
    assert found is not None
    assert found.code == "overfitted"
    assert found.sentence == (
        f"Overfitted since epoch {4 * every}: validation loss rose from 0.4500 to 0.6067 while the training loss fell from 0.3000 to 0.05000. "
        "Set augmentation to light."
    )
    assert found.changes == {"augmentation": "light"}


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"augmentation": "light"}, {"augmentation": "medium"}),
        ({"augmentation": "medium"}, {"augmentation": "strong"}),
        ({"augmentation": "strong"}, {"label_smoothing": 0.1, "weight_decay": 0.0005}),
        ({"augmentation": "strong", "label_smoothing": 0.1}, {"weight_decay": 0.0005}),
        ({"augmentation": "own", "label_smoothing": 0.1, "weight_decay": 0.0005}, {"epochs": 4}),
        (
            {"augmentation": "strong", "optimizer": "adamw", "weight_decay": 0.0},
            {"label_smoothing": 0.1, "weight_decay": 0.01},
        ),
    ],
)
def test_overfitting_advises_unused_regularization(fields: dict[str, Any], changes: dict[str, Any]) -> None:
    found = find_verdict_on(*OVERFITTED, **fields)
    assert found is not None
    assert found.changes == pytest.approx(changes) if "augmentation" not in changes else found.changes == changes


AT_CHANCE = [0.7, 0.69, 0.7, 0.7]
REST = [1.0, 0.6, 0.45, 0.41, 0.405, 0.404, 0.403, 0.404]
TIED = [0.5, 0.6, 0.7, 0.75, 0.76, 0.76, 0.755, 0.76]
OVERFIT = {"epoch": 4, "best": 0.45, "last": 1.82 / 3, "training_before": 0.3, "training": 0.05}
LIGHT = {"augmentation": "light"}


@pytest.mark.parametrize(
    ("losses", "trained", "given", "expected"),
    [
        ([1 - 0.1 * n for n in range(6)], None, {}, ("falling", {"rate": 1 / 7, "epochs_more": 6}, {"epochs": 12})),
        ([2.203, 1.93, 1.351, 1.258, 1.151], [2.28, 2.1, 1.67, 1.21, 1.2], {}, ("falling",
         {"rate": 0.0740192, "epochs_more": 3}, {"epochs": 8})),
        (make_decaying_losses(6), None, {"outcome": "stopped", "epochs": 20}, ("falling", {"rate": 0.1392145}, {})),
        (make_decaying_losses(6), None, {"epochs": 100_000}, ("falling", {"rate": 0.1392145}, {})),
        (*OVERFITTED, {"top1": [0.5, 0.6, 0.7, 0.76, 0.76, 0.76, 0.76, 0.76]}, ("overfitted", OVERFIT, LIGHT)),
        # One better epoch does not count as an improvement, and neither does one within the error of few samples.
        (*OVERFITTED, {"top1": [0.5, 0.6, 0.7, 0.76, 0.76, 0.76, 0.76, 0.81]}, ("overfitted", OVERFIT, LIGHT)),
        (*OVERFITTED, {"top1": [0.5, 0.6, 0.7, 0.76, 0.77, 0.78, 0.79, 0.8], "val": 100}, ("overfitted", OVERFIT, LIGHT)),
        (*OVERFITTED, {"top1": [0.5, 0.6, 0.7, 0.75, 0.8, 0.83, 0.86, 0.88]}, None),
        (OVERFITTED[0], None, {}, None),
        # The loss has risen for two epochs only.
        ([1.0, 0.7, 0.5, 0.45, 0.55, 0.65], OVERFITTED[1][:6], {}, ("converged", {"best_epoch": 4, "epochs": 6}, {})),
        # The metric that selects the checkpoint determines the best epoch, and among equal epochs the loss.
        (REST, None, {"top1": TIED, "epochs": 20}, ("converged", {"best_epoch": 6, "epochs": 8}, {})),
        (REST, None, {"top1": TIED, "best_by": "loss"}, ("converged", {"best_epoch": 7, "epochs": 8}, {})),
        (REST, None, {"top1": [math.nan] * 6 + [0.7, 0.71]}, None),
        ([2.3, 2.6, 3.0, 3.5], [2.0, 1.0, 0.3, 0.1], {"top1": [0.1, 0.11, 0.09, 0.1], "accuracy": 0.98}, ("not_generalized",
         {"training_accuracy": 0.98, "validation_accuracy": 0.11, "chance": 0.1}, {})),
        # Few samples can't show that a classifier is not better than chance.
        (AT_CHANCE, None, {"top1": [0.5] * 4, "accuracy": 0.5, "classes": 2, "val": 40}, None),
        (AT_CHANCE, None, {"top1": [0.1] * 4, "accuracy": 0.3}, ("not_fitted",
         {"first_loss": 0.7, "last_loss": 0.7, "learning_rate": 0.01}, {"learning_rate": 0.1})),
        ([2.3, 2.2, 1.9, 1.8], None, {"top1": [0.1] * 4, "accuracy": 0.3}, None),
    ],
)  # fmt: skip
def test_verdict_figures_and_changes(
    losses: list[float], trained: list[float] | None, given: Any, expected: Any
) -> None:
    found = find_verdict_on(losses, trained or losses, **given)
    assert (found and (found.code, pytest.approx(found.figures), found.changes)) == expected


def find_verdict_on_flat(rate: float, losses: list[float], **fields: Any) -> Verdict | None:
    return find_verdict_on(losses, losses, top1=[0.1] * len(losses), accuracy=0.1, learning_rate=rate, **fields)


def test_rate_is_too_low_if_loss_is_constant() -> None:
    found = find_verdict_on_flat(1e-8, [2.31, 2.309, 2.308, 2.307])
    assert found is not None
    assert found.code == "not_fitted"
    assert found.sentence == (
        "The training loss went from 2.310 to 2.307 and nothing was learned: the learning rate of 1e-08 is too low. Try 0.01."
    )
    assert found.changes == {"learning_rate": 0.01}


def test_rate_is_too_low_if_segmentation_is_constant() -> None:
    history = History()
    history.add(plan(3))
    for number in range(1, 5):
        epoch(history, number, 3.2, None, {"miou": 0.3, "mean_f1": 0.3, "pixel_accuracy": 0.7, "loss": 3.2})
    found = find_verdict(
        history, Job.from_fields(task="segmentation", model="unet", learning_rate=1e-8, epochs=4), "completed"
    )
    assert found is not None
    assert found.code == "not_fitted"
    usual = find_verdict(history, Job.from_fields(task="segmentation", model="unet", epochs=4), "completed")
    assert usual is None, "it may have started from pretrained weights"


def find_verdict_on_values(values: list[float]) -> Verdict | None:
    history = History()
    history.add(plan(3))
    for number, value in enumerate(values, 1):
        epoch(history, number, 2 * 0.8**number, None, {"map": value, "ap50": value, "ap75": value})
    return find_verdict(history, Job.from_fields(task="detection", model="fasterrcnn", epochs=len(values)), "completed")


def test_task_without_validation_loss_uses_its_best_metric() -> None:
    rising, over, rest = (
        find_verdict_on_values(values)
        for values in (
            [0.01, 0.05, 0.1, 0.15, 0.19],
            [0.1, 0.3, 0.4, 0.36, 0.33, 0.3],
            [0.1, 0.3, 0.4, 0.401, 0.4, 0.402, 0.401, 0.4],
        )
    )
    assert rising is not None
    assert rising.sentence.startswith("mAP was still rising by 24% per epoch: train for ")
    assert over is not None
    assert over.sentence.startswith("Overfitted since epoch 3: mAP fell from 40.0% to 33.0% while")
    assert rest is not None
    assert rest.sentence == "Converged: the best epoch was 6 of 8."


def test_converged_if_at_rest() -> None:
    losses = [1.0, 0.6, 0.45, 0.41, 0.405, 0.404, 0.403, 0.404]
    found = find_verdict_on(losses, losses)
    assert found is not None
    assert found.sentence == "Converged: the best epoch was 7 of 8."
    assert find_verdict_on(losses, losses, outcome="stopped", epochs=20) is None, "its schedule had not ended"


AT_REST = [1.0, 0.6, 0.45, 0.41, 0.405, 0.404]


def find_verdict_on_recalls(
    recalls: list[float], counts: list[int], *, losses: list[float] = AT_REST, top1: float = 0.8, accuracy: float = 0.9,
    **fields: Any,
) -> Verdict | None:  # fmt: skip
    """Return the verdict on a run that ends with these recalls of the classes.

    `counts` is the number of validation samples per class. All missed samples are predicted as the first class.
    `losses` has the training and validation loss of each epoch. `top1` and `accuracy` are the validation and training
    accuracy of all epochs, and `fields` override fields of the job.
    """
    history = History()
    history.add(plan(len(counts)))
    for number, loss in enumerate(losses, 1):
        epoch(history, number, loss, accuracy, {"top1": top1, "loss": loss})
    rows = []
    for number, (recall, count) in enumerate(zip(recalls, counts, strict=True)):
        row = [0] * len(counts)
        row[number] += round(recall * count)
        row[0] += count - round(recall * count)
        rows.append(tuple(row))
    history.add(ClassMeasures(epoch=6, step=6 * STEPS, measures={"Recall": tuple(recalls)}, confusion=tuple(rows)))
    return find_verdict(history, Job.from_fields(epochs=6, **fields), "completed")


def test_rare_weak_classes_are_oversampled() -> None:
    recalls, counts = [0.9, 0.9, 0.85, 0.1, 0.0], [100, 100, 100, 20, 10]
    found = find_verdict_on_recalls(recalls, counts)
    assert found is not None
    assert found.sentence == (
        "“class 4” (recall 0%) and “class 3” (recall 10%) are rare and rarely recognized. Turn on “Oversample rare classes”."
    )
    assert found.changes == {"oversample": True}
    again = find_verdict_on_recalls(recalls, counts, oversample=True)
    assert again is not None
    assert again.changes == {}
    assert again.sentence.endswith("Add more images of them.")
    for class_weights, changes in (("none", {"class_weights": "balanced"}), ("balanced", {})):
        found = find_verdict_on_recalls(recalls, counts, task="segmentation", class_weights=class_weights)
        assert found is not None
        assert found.changes == changes


def test_frequent_class_never_predicted() -> None:
    found = find_verdict_on_recalls([0.9, 0.9, 0.8, 0.0], [100, 100, 100, 100])
    assert found is not None
    assert found.sentence == "“class 3” is never predicted, although not rare: check its images and labels."


def test_weak_classes_are_ignored_while_learning() -> None:
    found = find_verdict_on_recalls(
        [0.9, 0.9, 0.8, 0.0], [100, 100, 100, 100], losses=[1.0, 0.9, 0.99, 0.8, 0.78, 0.75]
    )
    assert found is None


def test_class_with_few_samples_is_not_weak() -> None:
    found = find_verdict_on_recalls([0.7, 0.7, 0.7, 0.3], [100, 100, 100, 3])
    assert found is not None
    assert found.code == "converged"


@pytest.mark.parametrize(
    ("rate", "losses", "changes"),
    [
        (5.0, [2.5, 9.0, 4.0, 6.0], {"learning_rate": 0.01}),
        (5.0, [80.0, 5.0, 2.4, 2.3], {"learning_rate": 0.01}),
        (0.01, [2.31, 2.308, 2.306], {"learning_rate": 0.1}),
        (0.01, [2.3, 2.9, 3.4], {"learning_rate": 0.001}),
        (0.01, [2.3, 2.9, 2.29], {"learning_rate": 0.001}),
        (0.01, [2.3, 2.305, 2.31], {"learning_rate": 0.001}),
        (0.005, [2.3, 2.9, 3.4], {"learning_rate": 0.001}),
        (0.01, [2.31, 2.308, 2.306, 2.305], {"freeze_epochs": 0}),
    ],
)
def test_run_that_learns_nothing_needs_another_rate(rate: float, losses: list[float], changes: dict[str, Any]) -> None:
    found = find_verdict_on_flat(rate, losses, freeze_epochs=4 if "freeze_epochs" in changes else 0)
    assert found is not None
    assert found.code == "not_fitted"
    assert found.figures == {"first_loss": losses[0], "last_loss": losses[-1], "learning_rate": rate}
    assert found.changes == pytest.approx(changes)


def test_chance_level_follows_the_most_frequent_class() -> None:
    found = find_verdict_on_recalls([1.0, 0.0, 0.0, 0.0], [700, 100, 100, 100], top1=0.7, accuracy=0.7)
    assert found is not None
    assert found.code == "not_fitted"


@pytest.mark.parametrize("outcome", ["failed", "paused"])
def test_no_verdict_on_unfinished_run(outcome: Outcome) -> None:
    assert find_verdict_on(*OVERFITTED, outcome=outcome) is None


def test_no_verdict_after_too_few_epochs() -> None:
    for epochs in range(MIN_EPOCHS):
        losses = make_decaying_losses(epochs)
        assert find_verdict_on(losses, losses) is None


def test_history_counts_repeated_steps_once() -> None:
    history = History()
    history.add(plan())
    for number in range(1, 5):
        epoch(history, number, 5.0, 0.1, {"top1": 0.1, "loss": 5.0})
    history.add(plan(from_step=2 * STEPS))
    assert sorted(history.epochs) == [1, 2]
    epoch(history, 3, 1.0, 0.5, {"top1": 0.5, "loss": 1.0})
    assert history.epochs[3].loss == 1.0
    assert history.epochs[3].measures["loss"] == 1.0


@pytest.mark.parametrize("spread", [0.002, 0.02, 0.1])
def test_noise_is_seldom_a_trend(spread: float) -> None:
    wrong = 0
    for seed in range(200):
        chance = random.Random(seed)
        losses = [0.5 * (1 + chance.gauss(0, spread)) for _ in range(12)]
        found = find_verdict_on(losses, [0.5 * 0.9**number for number in range(12)], top1=[0.8] * 12)
        wrong += found is not None and found.code != "converged"
    assert wrong <= 6, "at most three in a hundred"


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 10) | st.sampled_from([0.0, 0.5, 1.0])
TASKS = [task for task in load_catalogue().tasks if not task.file]


def test_history_mean_of_huge_losses_is_finite() -> None:
    history = History()
    epoch(history, 1, -1.7e308, None, {})
    assert history.epochs[1].loss == pytest.approx(-1.7e308)


@given(data=st.data())
@settings(max_examples=150)
def test_verdict_on_any_history_is_valid(data: st.DataObject) -> None:
    task = data.draw(st.sampled_from(TASKS))
    classes = data.draw(st.integers(0, 4))
    history = History()
    if data.draw(st.booleans()):
        history.add(plan(classes, val=data.draw(st.integers(0, 100))))
    for number in range(1, data.draw(st.integers(0, 9)) + 1):
        measures = {m.id: data.draw(NUMBERS) for m in task.metrics if data.draw(st.integers(0, 5))}
        accuracy = data.draw(st.none() | st.floats(0, 1))
        epoch(history, number, data.draw(NUMBERS), accuracy, measures)
    rows = data.draw(st.lists(st.lists(st.integers(0, 50), min_size=classes, max_size=classes).map(tuple), max_size=4))
    recalls = tuple(data.draw(st.lists(st.none() | st.floats(0, 1), max_size=4)))
    history.add(ClassMeasures(epoch=1, step=1, measures={"Recall": recalls}, confusion=tuple(rows)))
    job = Job.from_fields(
        task=task.id,
        epochs=data.draw(st.sampled_from([1, 9, 100_000])),
        learning_rate=data.draw(st.floats(1e-9, 100)),
        freeze_epochs=data.draw(st.sampled_from([0, 100_000])),
        best_by=data.draw(st.sampled_from(["", *(measure.id for measure in task.metrics), "unknown"])),
    )
    found = find_verdict(history, job, data.draw(st.sampled_from(["completed", "stopped"])))
    if found is None:
        return
    assert found.sentence.endswith(".")
    assert all(map(math.isfinite, found.figures.values()))
    assert found.changes.keys() <= FIELDS.keys()
    values = {name: job.value(name) for name in ("task", "epochs", "learning_rate")} | found.changes
    assert job_from_values(values)[1] == []
    assert all(job.value(name) != value for name, value in found.changes.items())
