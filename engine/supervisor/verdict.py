"""What a run that has ended could do better: one sentence, and the settings to change. Pure functions over its
history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from engine.contract.catalogue import Measure, TaskEntry, load_catalogue
from engine.contract.events import Outcome, Verdict
from engine.contract.idle_fields import idle_fields
from engine.contract.job import FIELDS, Job
from engine.supervisor.history import Epoch, History
from engine.system.format import counted, listed

ENOUGH = 3
"""The fewest epochs with a validation for a verdict: with fewer, a trend cannot be distinguished from noise."""
WINDOW = 6
"""The number of last validations that give a run's current level and the noise of its metrics."""
NOISE = 3.0
"""The standard deviations that a change must exceed: about one in a hundred flat, noisy curves is then misjudged."""
STEADY = 5
"""A loss that fell at each of this many validations in a row counts as falling: by chance that happens one time in
120."""
FALLING = 0.01
"""The share by which an epoch must lower the validation loss to be worth training."""
DECAY = 0.8
"""The ratio of an epoch's gain to the previous one's where there are too few epochs to fit it: a time constant of 4.5
epochs."""
RISEN = 0.05
"""The share by which the validation loss must have risen, and the training loss fallen, to call it overfitting."""
HARDLY = 0.05
"""The relative decrease from which a training loss counts as having fallen."""
HOPELESS = 0.05
"""A metric from 0 to 1 without a chance level that stays below this shows that nothing was learned."""
ODD = 10.0
"""A learning rate this many times above or below the usual one is the first suspect where nothing was learned."""
LEARNED = 0.25
"""How far above chance the training accuracy must be for the model to have learned its training images."""
CERTAIN = 0.15
"""The largest margin of two standard errors at which there are enough validation images to compare with chance."""
WEAK = 0.5
"""A class is weak if its recall, and rare if its count, is below this share of the median class's."""
WORKS = 0.3
"""The median recall from which a model as a whole works, so that single classes can be weak."""
USUAL_RATES = {"sgd": 0.01, "lamb": 0.005, "adagrad": 0.01}
USUAL_RATE = 0.001
"""Learning rates at which most models learn something: the defaults of torch and timm; 0.001 for Adam and its
variants."""
SMOOTHING = 0.1
"""The usual label smoothing (Szegedy et al. 2016, Rethinking the Inception Architecture)."""
MOST_DECAY = {"adamw": 0.05, "lamb": 0.05}
MOST_L2_DECAY = 0.0005
"""The strongest usual weight decay: of ImageNet's recipes with decoupled decay (timm), else AlexNet's and VGG's."""
ABSURD = 1e12
"""Larger values and NaNs come from a failed validation."""
_STRENGTHS = ("none", "light", "medium", "strong")
_NAMED = 3


def verdict(history: History, job: Job, outcome: Outcome) -> Verdict | None:
    """What is to be said of a run of `job` that has ended; None where its history does not tell.

    Whether a run has come to rest can only be said of one that was not stopped, since its schedule lowers the learning
    rate until the end.
    """
    task = load_catalogue().task(job.task)
    run = _Run.of(history, job, task) if task is not None else None
    if run is None or outcome not in ("completed", "stopped"):
        return None
    completed = outcome == "completed"
    found = _not_learned(run) or _overfitted(run) or _falling(run, completed=completed)
    if found is None and _at_rest(run):
        found = _weak_classes(run) or (_converged(run) if completed else None)
    return found


@dataclass(frozen=True)
class _Curve:
    """A validation measure, by epoch. `costs` are its values with the better the lower."""

    measure: Measure
    epochs: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def costs(self) -> tuple[float, ...]:
        return tuple(-value for value in self.values) if self.measure.higher_is_better else self.values

    @property
    def best(self) -> int:
        """The index of its best value, the first of several."""
        return min(range(len(self.values)), key=self.costs.__getitem__)

    def noise(self, begin: int = 0) -> float:
        """The standard deviation of its last values around their trend, of those from the index `begin` on, by second
        differences, in which a straight trend cancels out (Gasser, Sroka and Jennen-Steinmetz 1986); the larger the
        fewer they are, since few may look alike by chance.
        """
        last = self.costs[begin:][-WINDOW:]
        seconds = [a - 2 * b + c for a, b, c in zip(last, last[1:], last[2:], strict=False)]
        if not seconds:
            return math.inf
        return math.sqrt(_mean([each * each for each in seconds]) / 6) * (1 + 2 / len(seconds))

    @property
    def around_best(self) -> float:
        """The mean of the best value and its neighbours: of mere noise, the best one alone stands out from the rest."""
        return _mean(self.costs[max(0, self.best - 1) : self.best + 2])

    @property
    def recent(self) -> float:
        """The mean of the last values, three at most, after the best one; the best one where it is the last."""
        after = self.costs[max(self.best + 1, len(self.costs) - ENOUGH) :]
        return _mean(after) if after else self.costs[-1]

    def told(self, cost: float) -> str:
        value = abs(cost)
        return f"{100 * value:.1f} %" if self.measure.percent else f"{value:.3g}"


@dataclass(frozen=True)
class _Run:
    """A history with enough validations. `curve` is of the validation loss, or where there is none of the measure that
    decides which checkpoint is best, whose curve is `judge`. `trained` are the epochs that tell a training loss.
    """

    history: History
    job: Job
    task: TaskEntry
    curve: _Curve
    judge: _Curve
    trained: dict[int, Epoch] = field(default_factory=dict)

    @classmethod
    def of(cls, history: History, job: Job, task: TaskEntry) -> _Run | None:
        """None where too little is known."""
        known = [measure for measure in task.measures if any(measure.id in e.measures for e in history.epochs.values())]
        judge = next((measure for measure in known if measure.id == job.best_by), known[0] if known else None)
        loss = next((measure for measure in known if measure.id == "loss"), judge)
        if judge is None or loss is None:
            return None
        curve, judged = _curve(history, loss), _curve(history, judge)
        if min(len(curve.values), len(judged.values)) < ENOUGH:
            return None
        trained = {number: epoch for number, epoch in sorted(history.epochs.items()) if epoch.loss is not None}
        return cls(history, job, task, curve, judged, trained)

    @property
    def losses(self) -> list[float]:
        """The training loss, by epoch."""
        return [epoch.loss for epoch in self.trained.values() if epoch.loss is not None]

    @property
    def accuracy(self) -> float | None:
        """The training accuracy of the last epoch."""
        return next((epoch.accuracy for epoch in reversed(self.trained.values())), None)

    @property
    def counts(self) -> list[int]:
        """How often each class occurs in the validation split; empty where that is not known."""
        found = self.history.of_classes
        return [sum(row) for row in found.confusion] if found is not None else []

    def has(self, name: str) -> bool:
        """Whether that field has an effect in the job."""
        return name not in idle_fields(msgspec.structs.asdict(self.job), load_catalogue())


def _curve(history: History, measure: Measure) -> _Curve:
    told = [(number, epoch.measures.get(measure.id, math.nan)) for number, epoch in sorted(history.epochs.items())]
    known = [(number, value) for number, value in told if abs(value) < ABSURD]
    return _Curve(measure, tuple(number for number, _ in known), tuple(value for _, value in known))


# Nothing learned


def _not_learned(run: _Run) -> Verdict | None:
    losses = run.losses
    if len(losses) < ENOUGH or not losses[0]:
        return None
    if run.task.id == "classification" and "top1" in {measure.id for measure in run.task.measures}:
        return _at_chance(run, losses)
    judge, usual = run.judge, _usual_rate(run.job)
    of_none = judge.measure.percent and max(map(abs, judge.values)) <= HOPELESS
    odd = not usual / ODD <= run.job.learning_rate <= usual * ODD
    same = judge.costs[0] - min(judge.costs) <= NOISE * judge.noise()
    return _bad_rate(run, losses) if not _fell(losses) and (of_none or (odd and same)) else None


def _at_chance(run: _Run, losses: Sequence[float]) -> Verdict | None:
    """Of a classifier that is no better than one which always gives the most frequent class."""
    counts, classes = run.counts, len(run.history.classes)
    top1 = _curve(run.history, next(measure for measure in run.task.measures if measure.id == "top1"))
    if not top1.values or classes < 2 or run.history.val_samples < 1:
        return None
    chance = max(1 / classes, max(counts) / max(1, sum(counts)) if counts else 0.0)
    margin = 2 * math.sqrt(chance * max(0.0, 1 - chance) / run.history.val_samples)
    best, learned = max(top1.values), run.accuracy
    if margin > CERTAIN or best > chance + margin:
        return None
    if learned is not None and learned >= chance + LEARNED:
        sentence = (
            f"The model learned its training images ({_percent(learned)} correct) but does not generalize: "
            f"{_percent(best)} of the validation images are correct, and always predicting the most "
            f"frequent class would give {_percent(chance)}. Check that the labels of both splits are "
            "correct and use the same classes."
        )
        figures = {"training_accuracy": learned, "validation_accuracy": best, "chance": chance}
        return Verdict(code="not_generalised", sentence=sentence, figures=figures)
    hopeless = learned is not None and learned < chance + LEARNED / 2
    return _bad_rate(run, losses) if hopeless or not _fell(losses) else None


def _bad_rate(run: _Run, losses: Sequence[float]) -> Verdict:
    """Of a training loss that did not fall: the learning rate is too low where it lies below the usual ones or the loss
    moves little, and down; too high where it lies above them or the loss rises or jumps.
    """
    job, first, last = run.job, losses[0], losses[-1]
    figures = {"first_loss": first, "last_loss": last, "learning_rate": job.learning_rate}
    went = f"The training loss went from {first:.4g} to {last:.4g} and nothing was learned"
    if job.freeze_epochs >= job.epochs:
        sentence = f"{went} with only the head trained: train all layers."
        return Verdict(code="not_fitted", sentence=sentence, figures=figures, changes={"freeze_epochs": 0})
    usual = _usual_rate(job)
    moved = (max(losses) - min(losses)) / max(abs(min(losses)), 1e-12)
    if job.learning_rate < usual / NOISE:
        low = True
    elif job.learning_rate > usual * NOISE:
        low = False
    else:
        low = last <= first and moved < HARDLY
    better = (
        usual if low == (job.learning_rate < usual) and job.learning_rate != usual else usual * (10 if low else 0.1)
    )
    sentence = f"{went}: the learning rate of {job.learning_rate:g} is too {'low' if low else 'high'}. Try {better:g}."
    return Verdict(code="not_fitted", sentence=sentence, figures=figures, changes={"learning_rate": better})


def _usual_rate(job: Job) -> float:
    return USUAL_RATES.get(job.optimizer, USUAL_RATE)


def _fell(losses: Sequence[float]) -> bool:
    """Whether a training loss has fallen by what is worth speaking of."""
    return losses[0] - losses[-1] >= HARDLY * abs(losses[0])


# Too much learned


def _overfitted(run: _Run) -> Verdict | None:
    """Whether the validation loss has risen since its best epoch while the training loss fell, and what decides which
    checkpoint is best has become no better: a classifier often goes on to improve as its loss rises.
    """
    curve, judge = run.curve, run.judge
    since = curve.epochs[curve.best]
    before, now = run.trained.get(since), next(reversed(run.trained.values()), None)
    if before is None or now is None or not before.loss or now.loss is None:
        return None
    best, risen = curve.costs[curve.best], curve.recent
    fell = 1 - now.loss / before.loss
    rose = (risen - best) / max(abs(best), 1e-12)
    after = len(curve.values) - 1 - curve.best
    if after < ENOUGH or rose < RISEN or fell < RISEN:
        return None
    if risen - curve.around_best <= NOISE * curve.noise(curve.best):
        return None
    if since in judge.epochs:
        then = judge.epochs.index(since)
        if judge.costs[then] - _mean(judge.costs[-ENOUGH:]) > max(
            judge.noise(), _standard_error(run, judge.values[then])
        ):
            return None
    changes = _against_overfitting(run, since)
    rises = "fell" if curve.measure.higher_is_better else "rose"
    sentence = (
        f"Overfitted since epoch {since}: {_lower(curve.measure.title)} {rises} from {curve.told(best)} to {curve.told(risen)} "
        f"while the training loss fell from {before.loss:.3g} to {now.loss:.3g}.{_do(changes)}"
    )
    figures = {
        "epoch": since,
        "best": abs(best),
        "last": abs(risen),
        "training_before": before.loss,
        "training": now.loss,
    }
    return Verdict(code="overfitted", sentence=sentence, figures=figures, changes=changes)


def _standard_error(run: _Run, value: float) -> float:
    """Of a measure that is a share of the validation samples; next to none of others."""
    share = min(max(value, 0.0), 1.0)
    return math.sqrt(share * (1 - share) / max(1, run.history.val_samples)) if run.judge.measure.percent else 1e-9


def _against_overfitting(run: _Run, since: int) -> dict[str, int | float | str | bool]:
    """The next stronger augmentation; past that more regularisation; past that as many epochs as were of use."""
    job = run.job
    if run.has("augmentation") and job.augmentation in _STRENGTHS[:-1]:
        return {"augmentation": _STRENGTHS[_STRENGTHS.index(job.augmentation) + 1]}
    changes: dict[str, int | float | str | bool] = {}
    if run.has("label_smoothing") and not job.label_smoothing:
        changes["label_smoothing"] = SMOOTHING
    most = MOST_DECAY.get(job.optimizer, MOST_L2_DECAY)
    if job.weight_decay < most:
        changes["weight_decay"] = min(most, 5 * job.weight_decay or most / 5)
    return changes or ({"epochs": since} if since < job.epochs else {})


# Too little learned


def _falling(run: _Run, *, completed: bool) -> Verdict | None:
    curve = run.curve
    before, middle, now = curve.costs[-ENOUGH:]
    fall = (before - now) / 2
    rate = fall / max(abs(before), abs(now), 1e-12)
    if not before > middle > now == min(curve.costs) or rate < FALLING:
        return None
    if not _always_falls(curve.costs[-STEADY:]) and before - now <= NOISE * curve.noise():
        return None
    epochs = curve.epochs[-1]
    moves = "rising" if curve.measure.higher_is_better else "falling"
    said = f"{curve.measure.title} was still {moves} by {_percent(rate)} per epoch"
    if not completed:
        sentence = f"{said} when the run was stopped after {epochs} of {run.job.epochs} epochs: resume the run."
        return Verdict(code="falling", sentence=sentence, figures={"rate": rate})
    most, so_far = int(FIELDS["epochs"].maximum or 0), max(run.job.epochs, epochs)
    more = min(_epochs_more(curve, rate), most - so_far)
    if more <= 0:
        return Verdict(
            code="falling", sentence=f"{said} after {most:,} epochs, the maximum for a run.", figures={"rate": rate}
        )
    sentence = f"{said}: train for {counted(more, 'more epoch')}."
    return Verdict(
        code="falling",
        sentence=sentence,
        figures={"rate": rate, "epochs_more": more},
        changes={"epochs": so_far + more},
    )


def _always_falls(costs: Sequence[float]) -> bool:
    return len(costs) == STEADY and all(a > b for a, b in pairwise(costs))


def _epochs_more(curve: _Curve, rate: float) -> int:
    """Until an epoch's gain, which shrinks exponentially, is worth no more; as many as there were at most."""
    keeps = DECAY
    if len(curve.costs) >= STEADY:
        first, middle, last = curve.costs[-STEADY::2]
        if first > middle:
            keeps = min(0.98, max(0.5, math.sqrt(max(0.0, middle - last) / (first - middle))))
    more = math.ceil(math.log(FALLING / rate) / math.log(keeps))
    return min(max(1, more), len(curve.costs))


def _at_rest(run: _Run) -> bool:
    """Whether the last epochs changed nothing that is worth speaking of, in either direction, of a run that had
    learned.
    """
    curve = run.curve
    if run.losses and not _fell(run.losses):
        return False
    scale = max(abs(curve.costs[-ENOUGH]), abs(curve.costs[-1]), 1e-12)
    falls = (curve.costs[-ENOUGH] - curve.costs[-1]) / 2 / scale
    best = curve.costs[curve.best]
    return falls < FALLING and curve.recent - best <= max(NOISE * curve.noise(), RISEN * abs(best))


def _converged(run: _Run) -> Verdict:
    best, last = run.judge.epochs[run.judge.best], run.judge.epochs[-1]
    sentence = f"Converged: the best epoch was {best} of {last}."
    return Verdict(code="converged", sentence=sentence, figures={"best_epoch": best, "epochs": last})


# Single classes


def _weak_classes(run: _Run) -> Verdict | None:
    """The classes that are found much less often than the middle one, by more than chance."""
    found, counts = run.history.of_classes, run.counts
    recalls = found.measures.get("Recall", ()) if found is not None else ()
    known = sorted(recall for recall in recalls if recall is not None)
    if found is None or not known or not len(counts) == len(recalls) == len(run.history.classes):
        return None
    middle, typical = known[len(known) // 2], sorted(counts)[len(counts) // 2]
    weak = [
        (recall, run.history.classes[number], counts[number], sum(row[number] for row in found.confusion))
        for number, recall in enumerate(recalls)
        if recall is not None and counts[number] and recall < WEAK * middle
        and middle - recall > 2 * math.sqrt(max(0.0, middle * (1 - middle)) / counts[number])
    ]  # fmt: skip
    if middle < WORKS or not weak:
        return None
    rare = sorted(each for each in weak if each[2] < WEAK * typical)
    figures = {f"recall of {name}": recall for recall, name, *_ in sorted(weak)[:_NAMED]}
    if rare:
        changes = _for_rare_classes(run)
        names = listed([f"“{name}” (recall {_percent(recall)})" for recall, name, *_ in rare], most=_NAMED)
        rest = _do(changes) or " Add more images of them."
        are = "is rare and rarely recognized" if len(rare) == 1 else "are rare and rarely recognized"
        return Verdict(code="weak_classes", sentence=f"{names} {are}.{rest}", figures=figures, changes=changes)
    never = [f"“{name}”" for _, name, _, predicted in sorted(weak) if not predicted]
    if not never:
        return None
    are, its = ("is", "its") if len(never) == 1 else ("are", "their")
    sentence = f"{listed(never, most=_NAMED)} {are} never predicted, although not rare: check {its} images and labels."
    return Verdict(code="weak_classes", sentence=sentence, figures=figures)


def _for_rare_classes(run: _Run) -> dict[str, int | float | str | bool]:
    if run.has("oversample") and not run.job.oversample:
        return {"oversample": True}
    if run.has("class_weights") and run.job.class_weights == "none" and not run.job.oversample:
        return {"class_weights": "balanced"}
    return {}


# Words


def _do(changes: dict[str, int | float | str | bool]) -> str:
    """ " Set label smoothing to 0.1 and weight decay to 0.0005." or " Turn on “Oversample rare classes”.", "" without
    changes.
    """
    switches = [f"“{FIELDS[name].label}”" for name, value in changes.items() if value is True]
    if switches:
        return f" Turn on {listed(switches, most=_NAMED)}."
    settings = [
        f"{_lower(FIELDS[name].label)} to {format(value, 'g') if isinstance(value, float) else value}"
        for name, value in changes.items()
    ]
    return f" Set {listed(settings, most=_NAMED)}." if settings else ""


def _lower(title: str) -> str:
    """A title within a sentence; abbreviations such as "IoU" stay as they are."""
    return title[:1].lower() + title[1:] if title.partition(" ")[0][1:].islower() else title


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
