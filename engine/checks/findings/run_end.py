"""Rules that find improvements for a run that has ended, based on its training and validation metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from engine.checks.findings.history import Epoch, History
from engine.contract.catalogue import Measure, TaskEntry, load_catalogue
from engine.contract.events import Outcome, Verdict
from engine.contract.idle_fields import find_idle_fields
from engine.contract.job import FIELDS, Job
from engine.system.format import counted, listed, metric_value, percent

MIN_EPOCHS = 3
"""Minimum number of validated epochs for a diagnosis of a run. With fewer epochs, noise may look like a trend."""
NOISE_WINDOW = 6
"""Number of latest validations used to estimate the noise of a metric."""
NOISE_DEVIATIONS = 3.0
"""Number of standard deviations of the noise that a change must exceed.

About 1% of flat, noisy curves are misjudged.
"""
STEADY_EPOCHS = 5
"""Number of successive validations whose falling loss counts as a real decrease.

The probability that noise alone orders them like this is 1 in 120.
"""
WORTHWHILE_GAIN = 0.01
"""Minimum relative decrease of the validation loss for which another epoch is worthwhile."""
DEFAULT_GAIN_RATIO = 0.8
"""Assumed ratio between the gains of successive epochs, if there are too few epochs to fit it.

It corresponds to a time constant of 4.5 epochs.
"""
OVERFIT_CHANGE = 0.05
"""Minimum relative increase of the validation loss, and minimum decrease of the training loss, in an overfitted run."""
LEARNING_DECREASE = 0.05
"""Minimum relative decrease of the training loss in a run that learns."""
NOTHING_LEARNED = 0.05
"""Maximum value of a metric, from 0 to 1, of a run that has learned nothing, if the metric has no chance level."""
SUSPECT_RATE_FACTOR = 10.0
"""Factor between a learning rate and the usual one above which the rate is suspected if nothing was learned."""
CLEAR_RATE_FACTOR = 3.0
"""Factor between a learning rate and the usual one above which the rate itself tells if it is too low or too high."""
LEARNED_ABOVE_CHANCE = 0.25
"""Minimum difference between training accuracy and chance in a model that has learned its training images."""
MAX_CHANCE_MARGIN = 0.15
"""Maximum margin, two standard errors of the accuracy, for a comparison with chance.

With fewer samples, the margin is larger, and the comparison is not meaningful.
"""
WEAK_FRACTION = 0.5
"""Fraction of the median over all classes below which a class is reported.

A class is weak if its recall is below this fraction of the median recall, and rare if its number of samples is below
this fraction of the median number.
"""
MIN_MEDIAN_RECALL = 0.3
"""Minimum median recall of all classes for which single classes are called weak.

Below it, the model does not work in general.
"""
USUAL_RATES = {"sgd": 0.01, "lamb": 0.005, "adagrad": 0.01}
USUAL_RATE = 0.001
"""Learning rate at which most models learn, for optimizers that are not in `USUAL_RATES`.

The values are the defaults of torch and timm, and 0.001 for the variants of Adam.
"""
USUAL_SMOOTHING = 0.1
"""Usual label smoothing (Szegedy et al. 2016, Rethinking the Inception Architecture)."""
MAX_DECOUPLED_DECAY = {"adamw": 0.05, "lamb": 0.05}
MAX_L2_DECAY = 0.0005
"""Maximum usual weight decay for optimizers that are not in `MAX_DECOUPLED_DECAY`.

It is that of AlexNet and VGG. The decoupled values are those of timm's ImageNet recipes.
"""
MAX_PLAUSIBLE = 1e12
"""Maximum plausible absolute value of a metric. Larger values, and NaN, come from a failed validation."""
_STRENGTHS = ("none", "light", "medium", "strong")
_MAX_NAMES = 3

_Changes = dict[str, int | float | str | bool]


def find_verdict(history: History, job: Job, outcome: Outcome) -> Verdict | None:
    """Return a diagnosis of a run that has ended with `outcome`, or None if nothing is noteworthy.

    A paused or failed run gets none. A stopped run never counts as converged, since its schedule would have reduced the
    learning rate further.
    """
    task = load_catalogue().task(job.task)
    run = _Run.of(history, job, task) if task is not None else None
    if run is None or outcome not in ("completed", "stopped"):
        return None
    is_completed = outcome == "completed"
    verdict = _check_learning(run) or _check_overfitting(run) or _check_falling(run, is_completed=is_completed)
    if verdict is not None or not _has_plateaued(run):
        return verdict
    verdict = _check_classes(run)
    if verdict is None and is_completed:
        verdict = _create_converged_verdict(run)
    return verdict


@dataclass(frozen=True)
class _Curve:
    """Values of a validation metric by epoch."""

    measure: Measure
    epochs: tuple[int, ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, history: History, measure: Measure) -> _Curve:
        """Create the curve of a metric. Epochs without it, and implausible values such as NaN, are left out."""
        values = {number: epoch.measures.get(measure.id, math.nan) for number, epoch in sorted(history.epochs.items())}
        plausible = {number: value for number, value in values.items() if abs(value) < MAX_PLAUSIBLE}
        return cls(measure, tuple(plausible), tuple(plausible.values()))

    @property
    def costs(self) -> tuple[float, ...]:
        """Values of the metric by epoch, negated if higher values are better, so that lower costs are better."""
        return tuple(-value for value in self.values) if self.measure.higher_is_better else self.values

    @property
    def best(self) -> int:
        """Index of the epoch with the best value, or of the first one if there are several."""
        return min(range(len(self.values)), key=self.costs.__getitem__)

    def estimate_noise(self, start: int = 0) -> float:
        """Estimate the noise of the last values: their standard deviation around the trend.

        Values before the index `start` are ignored. The estimate is computed from second differences, which cancel a
        linear trend (Gasser, Sroka and Jennen-Steinmetz 1986). It is larger for fewer values, since a few values may
        agree by chance.
        """
        window = self.costs[start:][-NOISE_WINDOW:]
        second_differences = [
            first - 2 * second + third for first, second, third in zip(window, window[1:], window[2:], strict=False)
        ]
        if not second_differences:
            return math.inf
        mean_square = _mean([each * each for each in second_differences])  # 1² + 2² + 1² = 6 times the noise's variance
        return math.sqrt(mean_square / 6) * (1 + 2 / len(second_differences))

    @property
    def mean_near_best(self) -> float:
        """Mean of the best cost and the costs of the epochs directly before and after the best one.

        If the costs are pure noise, this mean is close to the other costs, unlike the best cost.
        """
        return _mean(self.costs[max(0, self.best - 1) : self.best + 2])

    @property
    def recent_mean(self) -> float:
        """Mean cost (see `costs`) of the last one to three epochs after the best, or the best cost if none follow."""
        after_best = self.costs[self.best + 1 :]
        return _mean(after_best[-MIN_EPOCHS:]) if after_best else self.costs[self.best]

    def format_cost(self, cost: float) -> str:
        """Format a value of the metric, given its cost (see `costs`), for the user."""
        return metric_value(abs(cost), percent=self.measure.percent)


@dataclass(frozen=True)
class _Run:
    """History of a run with enough validations for a diagnosis."""

    history: History
    job: Job
    task: TaskEntry
    curve: _Curve
    """Curve of the validation loss, or `best_curve` if the task has no loss."""
    best_curve: _Curve
    """Curve of the metric that selects the best checkpoint."""
    trained: dict[int, Epoch] = field(default_factory=dict)
    """Epochs that have a training loss, by number."""

    @classmethod
    def of(cls, history: History, job: Job, task: TaskEntry) -> _Run | None:
        """Create an instance from the history of a run of `job`, or return None if it has too few validations."""
        measured = {name for epoch in history.epochs.values() for name in epoch.measures}
        known = {measure.id: measure for measure in task.metrics if measure.id in measured}
        if not known:
            return None
        first, *_ = known.values()
        best_by = known.get(job.checkpoints.best_by, first)
        curve, best_curve = _Curve.of(history, known.get("loss", best_by)), _Curve.of(history, best_by)
        if min(len(curve.values), len(best_curve.values)) < MIN_EPOCHS:
            return None
        trained = {number: epoch for number, epoch in sorted(history.epochs.items()) if epoch.loss is not None}
        return cls(history, job, task, curve, best_curve, trained)

    @property
    def losses(self) -> list[float]:
        """Mean training loss of each epoch, in order."""
        return [epoch.loss for epoch in self.trained.values() if epoch.loss is not None]

    @property
    def is_learning(self) -> bool:
        """True if the training loss has noticeably decreased. There must be a training loss."""
        return self.losses[0] - self.losses[-1] >= LEARNING_DECREASE * abs(self.losses[0])

    @property
    def accuracy(self) -> float | None:
        """Training accuracy of the last epoch, or None if it was not measured."""
        return next((epoch.accuracy for epoch in reversed(self.trained.values())), None)

    @property
    def class_counts(self) -> list[int]:
        """Number of validation samples of each class, or an empty list if it is unknown."""
        measures = self.history.class_measures
        return [sum(row) for row in measures.confusion] if measures is not None else []

    def uses(self, name: str) -> bool:
        """Return True if the job field `name` has an effect in the run's job."""
        return name not in find_idle_fields(self.job.values(), load_catalogue())


# Nothing learned


def _check_learning(run: _Run) -> Verdict | None:
    """Return a diagnosis if the run has learned nothing, otherwise None.

    Classifiers are compared with chance. Metrics of other tasks have no chance level. Such a run has learned nothing if
    its training loss hasn't decreased, and its best metric is near zero or, with an unusual learning rate, hasn't
    improved either.
    """
    losses = run.losses
    if len(losses) < MIN_EPOCHS or losses[0] == 0:  # a loss of 0 can't decrease
        return None
    if run.task.predicts == "class" and "top1" in {measure.id for measure in run.task.metrics}:
        return _check_chance_level(run, losses)
    if run.is_learning:
        return None
    best, usual = run.best_curve, _get_usual_rate(run.job)
    is_near_zero = best.measure.percent and max(map(abs, best.values)) <= NOTHING_LEARNED
    is_rate_usual = usual / SUSPECT_RATE_FACTOR <= run.job.optimizer.learning_rate <= usual * SUSPECT_RATE_FACTOR
    is_flat = best.costs[0] - min(best.costs) <= NOISE_DEVIATIONS * best.estimate_noise()
    has_failed = is_near_zero or (is_flat and not is_rate_usual)
    return _create_rate_verdict(run, losses) if has_failed else None


def _check_chance_level(run: _Run, losses: Sequence[float]) -> Verdict | None:
    """Return a diagnosis if a classifier is not better than predicting only the most frequent class, otherwise None.

    `losses` are the training losses by epoch.
    """
    counts, classes = run.class_counts, len(run.history.classes)
    top1 = _Curve.of(run.history, next(measure for measure in run.task.metrics if measure.id == "top1"))
    if not top1.values or classes < 2 or run.history.val_samples < 1:
        return None
    most_frequent = max(counts) / max(1, sum(counts)) if counts else 0.0
    chance = max(1 / classes, most_frequent)
    margin = 2 * math.sqrt(chance * max(0.0, 1 - chance) / run.history.val_samples)  # two standard errors
    best, training_accuracy = max(top1.values), run.accuracy
    if margin > MAX_CHANCE_MARGIN or best > chance + margin:
        return None
    if training_accuracy is not None and training_accuracy >= chance + LEARNED_ABOVE_CHANCE:
        sentence = (
            f"The model learned its training images ({percent(training_accuracy)} correct) but does not generalize: "
            f"{percent(best)} of the validation images are correct, and always predicting the most "
            f"frequent class would give {percent(chance)}. Check that the labels of both splits are "
            "correct and use the same classes."
        )
        figures = {"training_accuracy": training_accuracy, "validation_accuracy": best, "chance": chance}
        return Verdict(code="not_generalized", sentence=sentence, figures=figures)
    # Between the two limits, a decreasing loss may still lead to a useful model.
    is_near_chance = training_accuracy is not None and training_accuracy < chance + LEARNED_ABOVE_CHANCE / 2
    return _create_rate_verdict(run, losses) if is_near_chance or not run.is_learning else None


def _create_rate_verdict(run: _Run, losses: Sequence[float]) -> Verdict:
    """Return the diagnosis that another learning rate is needed, for a run whose training loss hardly decreased.

    `losses` are the training losses by epoch. The rate counts as too low if it is clearly below the usual one, and as
    too high if it is clearly above. A rate near the usual one counts as too low if the loss decreased slightly, and as
    too high if it rose or jumped. If only the head was trained, the advice is to train all layers instead.
    """
    job, first, last = run.job, losses[0], losses[-1]
    figures = {"first_loss": first, "last_loss": last, "learning_rate": job.optimizer.learning_rate}
    fact = f"The training loss went from {_format_loss(first)} to {_format_loss(last)} and nothing was learned"
    if job.model.freeze_epochs >= job.training.epochs:
        sentence = f"{fact} with only the head trained: train all layers."
        return Verdict(code="not_fitted", sentence=sentence, figures=figures, changes={"freeze_epochs": 0})
    rate, usual = job.optimizer.learning_rate, _get_usual_rate(job)
    spread = (max(losses) - min(losses)) / max(abs(min(losses)), 1e-12)
    if rate < usual / CLEAR_RATE_FACTOR:
        is_low = True
    elif rate > usual * CLEAR_RATE_FACTOR:
        is_low = False
    else:
        is_low = last <= first and spread < LEARNING_DECREASE
    is_usual_better = usual > rate if is_low else usual < rate
    beyond_usual = 10 * usual if is_low else 0.1 * usual
    better = usual if is_usual_better else beyond_usual
    sentence = f"{fact}: the learning rate of {rate:g} is too {'low' if is_low else 'high'}. Try {better:g}."
    return Verdict(code="not_fitted", sentence=sentence, figures=figures, changes={"learning_rate": better})


def _get_usual_rate(job: Job) -> float:
    """Return the learning rate at which most models learn with the job's optimizer."""
    return USUAL_RATES.get(job.optimizer.name, USUAL_RATE)


# Overfitted


def _check_overfitting(run: _Run) -> Verdict | None:
    """Return a diagnosis if the validation loss has risen since its best epoch while the training loss has decreased.

    Otherwise, return None. Since classifiers often improve while their loss rises, the metric that selects the best
    checkpoint must also have stopped improving.
    """
    curve, epoch = run.curve, run.curve.epochs[run.curve.best]
    before, now = run.trained.get(epoch), next(reversed(run.trained.values()), None)
    if before is None or now is None or not before.loss or now.loss is None:
        return None
    best, recent = curve.costs[curve.best], curve.recent_mean  # costs, which are negative if higher values are better
    training_decrease, validation_increase = 1 - now.loss / before.loss, (recent - best) / max(abs(best), 1e-12)
    validations_since_best = len(curve.values) - 1 - curve.best
    if validations_since_best < MIN_EPOCHS or min(training_decrease, validation_increase) < OVERFIT_CHANGE:
        return None
    is_noise = recent - curve.mean_near_best <= NOISE_DEVIATIONS * curve.estimate_noise(curve.best)
    if is_noise or _is_still_improving(run, epoch):
        return None
    changes = _choose_regularization_changes(run, epoch)
    moved = "fell" if curve.measure.higher_is_better else "rose"
    sentence = (
        f"Overfitted since epoch {epoch}: {_lower_first_letter(curve.measure.title)} {moved} from {curve.format_cost(best)} to "
        f"{curve.format_cost(recent)} while the training loss fell from {_format_loss(before.loss)} to {_format_loss(now.loss)}.{_format_advice(changes)}"
    )
    figures = {"epoch": epoch, "best": abs(best), "last": abs(recent), "training_before": before.loss}
    return Verdict(code="overfitted", sentence=sentence, figures=figures | {"training": now.loss}, changes=changes)


def _is_still_improving(run: _Run, since: int) -> bool:
    """Return True if the metric that selects the best checkpoint has improved since epoch `since`.

    The mean over the last `MIN_EPOCHS` validations must be better than the validation after epoch `since` by more than
    the noise.
    """
    best = run.best_curve
    if since not in best.epochs:
        return False
    index = best.epochs.index(since)
    min_change = 1e-9  # more than rounding errors
    if best.measure.percent:  # a fraction of the samples, so its standard error is binomial
        fraction = min(max(best.values[index], 0.0), 1.0)
        min_change = math.sqrt(fraction * (1 - fraction) / max(1, run.history.val_samples))
    return best.costs[index] - _mean(best.costs[-MIN_EPOCHS:]) > max(best.estimate_noise(), min_change)


def _choose_regularization_changes(run: _Run, best_epoch: int) -> _Changes:
    """Return job fields to change against overfitting: stronger augmentation, other regularization, or fewer epochs.

    A kind of change is used only if all kinds before it in this list are already as strong as possible.
    """
    job = run.job
    if run.uses("augmentation") and job.augmentation.name in _STRENGTHS[:-1]:
        return {"augmentation": _STRENGTHS[_STRENGTHS.index(job.augmentation.name) + 1]}
    changes: _Changes = {}
    if run.uses("label_smoothing") and not job.training.label_smoothing:
        changes["label_smoothing"] = USUAL_SMOOTHING
    strongest = MAX_DECOUPLED_DECAY.get(job.optimizer.name, MAX_L2_DECAY)
    if job.optimizer.weight_decay < strongest:
        stronger = 5 * job.optimizer.weight_decay or strongest / 5  # a fifth of the maximum if it was 0
        changes["weight_decay"] = min(strongest, stronger)
    if not changes and best_epoch < job.training.epochs:
        changes["epochs"] = best_epoch
    return changes


# Ended too early


def _check_falling(run: _Run, *, is_completed: bool) -> Verdict | None:
    """Return a diagnosis if the validation curve still improved so fast that more epochs would help, otherwise None."""
    curve = run.curve
    before, middle, now = curve.costs[-MIN_EPOCHS:]
    # Mean improvement per epoch, as a fraction of the value.
    rate = (before - now) / (MIN_EPOCHS - 1) / max(abs(before), abs(now), 1e-12)
    is_improving = before > middle > now == min(curve.costs)
    if not is_improving or rate < WORTHWHILE_GAIN:
        return None
    last = curve.costs[-STEADY_EPOCHS:]
    is_steady = len(last) == STEADY_EPOCHS and all(cost > next_cost for cost, next_cost in pairwise(last))
    is_above_noise = before - now > NOISE_DEVIATIONS * curve.estimate_noise()
    if not is_steady and not is_above_noise:
        return None
    epochs, figures = curve.epochs[-1], {"rate": rate}
    moving = "rising" if curve.measure.higher_is_better else "falling"
    fact = f"{curve.measure.title} was still {moving} by {percent(rate)} per epoch"
    if not is_completed:
        sentence = (
            f"{fact} when the run was stopped after {epochs} of {run.job.training.epochs} epochs: resume the run."
        )
        return Verdict(code="falling", sentence=sentence, figures=figures)
    maximum, done = int(FIELDS["epochs"].maximum or 0), max(run.job.training.epochs, epochs)
    more = min(_predict_worthwhile_epochs(curve, rate), maximum - done)
    if more <= 0:
        return Verdict(
            code="falling", sentence=f"{fact} after {maximum:,} epochs, the maximum for a run.", figures=figures
        )
    sentence = f"{fact}: train for {counted(more, 'more epoch')}."
    figures |= {"epochs_more": more}
    return Verdict(code="falling", sentence=sentence, figures=figures, changes={"epochs": done + more})


def _predict_worthwhile_epochs(curve: _Curve, rate: float) -> int:
    """Predict how many more epochs will each reduce the cost by at least the fraction `WORTHWHILE_GAIN`.

    The gains are assumed to shrink exponentially. `rate` is the latest relative decrease of the cost per epoch. The
    result is at least 1, and at most the number of epochs in `curve`.
    """
    ratio = DEFAULT_GAIN_RATIO  # of the gain of an epoch to that of the epoch before
    if len(curve.costs) >= STEADY_EPOCHS:
        first, middle, last = curve.costs[-STEADY_EPOCHS::2]  # two epochs apart, so the root gives the ratio per epoch
        if first > middle:
            measured_ratio = math.sqrt(max(0.0, middle - last) / (first - middle))
            ratio = min(0.98, max(0.5, measured_ratio))  # limited, since noise may distort it
    more = math.ceil(math.log(WORTHWHILE_GAIN / rate) / math.log(ratio))
    return min(max(1, more), len(curve.costs))


def _has_plateaued(run: _Run) -> bool:
    """Return True if the run has learned, and its last validation values differ only by noise."""
    curve = run.curve
    if run.losses and not run.is_learning:
        return False
    before, now, best = curve.costs[-MIN_EPOCHS], curve.costs[-1], curve.costs[curve.best]
    # Mean improvement per epoch, as a fraction of the value. There is one step less than values.
    rate = (before - now) / (MIN_EPOCHS - 1) / max(abs(before), abs(now), 1e-12)
    tolerance = max(NOISE_DEVIATIONS * curve.estimate_noise(), OVERFIT_CHANGE * abs(best))
    return rate < WORTHWHILE_GAIN and curve.recent_mean - best <= tolerance


def _create_converged_verdict(run: _Run) -> Verdict:
    """Return the diagnosis that the run has converged, so that no change of its settings is known to help."""
    costs = dict(zip(run.best_curve.epochs, run.best_curve.costs, strict=True))
    losses = dict(zip(run.curve.epochs, run.curve.costs, strict=True))
    # Of equally good epochs, the one with the lowest loss is the best.
    best_epoch = min(costs, key=lambda epoch: (costs[epoch], losses.get(epoch, math.inf)))
    last_epoch = max(costs)
    sentence = f"Converged: the best epoch was {best_epoch} of {last_epoch}."
    return Verdict(code="converged", sentence=sentence, figures={"best_epoch": best_epoch, "epochs": last_epoch})


# Single classes


class _WeakClass(NamedTuple):
    """Class with a low recall, its number of validation samples, and how often it was predicted.

    The recall comes first, so that sorting puts the weakest class first.
    """

    recall: float
    name: str
    samples: int
    predictions: int


def _check_classes(run: _Run) -> Verdict | None:
    """Return a diagnosis that names classes with a recall far below the median, or None if there are none.

    The difference must be too large to occur by chance.
    """
    measured, counts = run.history.class_measures, run.class_counts
    recalls = measured.measures.get("Recall", ()) if measured is not None else ()
    known = sorted(recall for recall in recalls if recall is not None)
    if measured is None or not known or not len(counts) == len(recalls) == len(run.history.classes):
        return None
    median, typical_count = known[len(known) // 2], sorted(counts)[len(counts) // 2]

    def is_weak(recall: float, count: int) -> bool:
        """Return True if the recall of a class with `count` samples is far below the median, and not by chance."""
        standard_error = math.sqrt(max(0.0, median * (1 - median)) / count)
        return recall < WEAK_FRACTION * median and median - recall > 2 * standard_error

    prediction_counts = [sum(column) for column in zip(*measured.confusion, strict=True)]
    weak = sorted(
        _WeakClass(recall, name, count, predictions)
        for name, recall, count, predictions in zip(
            run.history.classes, recalls, counts, prediction_counts, strict=True
        )
        if recall is not None and count and is_weak(recall, count)
    )
    if median < MIN_MEDIAN_RECALL or not weak:
        return None
    figures = {f"recall of {each.name}": each.recall for each in weak[:_MAX_NAMES]}
    if rare := [each for each in weak if each.samples < WEAK_FRACTION * typical_count]:
        changes = _choose_balancing_changes(run)
        names = listed([f"“{each.name}” (recall {percent(each.recall)})" for each in rare], most=_MAX_NAMES)
        advice = _format_advice(changes) or " Add more images of them."
        sentence = f"{names} {'is' if len(rare) == 1 else 'are'} rare and rarely recognized.{advice}"
        return Verdict(code="weak_classes", sentence=sentence, figures=figures, changes=changes)
    never = [f"“{each.name}”" for each in weak if not each.predictions]
    if not never:
        return None
    are, its = ("is", "its") if len(never) == 1 else ("are", "their")
    names = listed(never, most=_MAX_NAMES)
    sentence = f"{names} {are} never predicted, although not rare: check {its} images and labels."
    return Verdict(code="weak_classes", sentence=sentence, figures=figures)


def _choose_balancing_changes(run: _Run) -> _Changes:
    """Return the job field to change so that rare classes get more weight, or {} if none helps.

    Oversampling is preferred to class weights, and makes them unnecessary.
    """
    if run.uses("oversample") and not run.job.data.oversample:
        return {"oversample": True}
    if run.uses("class_weights") and run.job.training.class_weights == "none" and not run.job.data.oversample:
        return {"class_weights": "balanced"}
    return {}


# Text


def _format_advice(changes: _Changes) -> str:
    """Return a sentence that advises the changes, or "" if there are none.

    The sentence starts with a space, as in “ Set label smoothing to 0.1.”
    """
    switches = [f"“{FIELDS[name].label}”" for name, value in changes.items() if value is True]
    if switches:
        return f" Turn on {listed(switches, most=_MAX_NAMES)}."
    values = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in changes.items()}
    settings = [f"{_lower_first_letter(FIELDS[name].label)} to {text}" for name, text in values.items()]
    return f" Set {listed(settings, most=_MAX_NAMES)}." if settings else ""


def _lower_first_letter(title: str) -> str:
    """Convert the first letter of a title to lower case, except in abbreviations such as "IoU"."""
    return title[:1].lower() + title[1:] if title.partition(" ")[0][1:].islower() else title


def _format_loss(value: float) -> str:
    return metric_value(value, percent=False)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
