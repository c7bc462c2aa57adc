"""What Optuna is asked: which settings to try next, whether a trial is worth going on with, what matters, and which
are best.

Optuna stores nothing. Each question is put to a study in memory that is made from the trials as they are (20 ms for
500), so that the answer follows from them and a seed alone, before a restart and after it.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState, create_trial

from engine.checks.space_checks import field_of, grid_values
from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.job import Job
from engine.contract.search import OPTION, Choices, Dimension, Range, Search, Trial, TrialRow

optuna.logging.set_verbosity(optuna.logging.WARNING)

REDUCTION = 3
"""Of so many trials at a rung one goes on, as in the papers on Hyperband and on asynchronous successive halving."""
LEAST_FOR_IMPORTANCE = 4
_ASKS = 1_000
"""So many seeds belong to each trial, for settings that turn out to be impossible."""

_STATES = {
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "stopped": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


@dataclass(frozen=True)
class Known:
    """A trial, and how it stands."""

    trial: Trial
    row: TrialRow


class Study:
    """A search's study. `job` and `catalogue` say what kinds its fields have."""

    def __init__(self, search: Search, catalogue: Catalogue) -> None:
        self._search = search
        self._fields = {name: field_of(search.job, name, catalogue) for name in search.space}
        self._distributions = {name: self._distribution(name, each) for name, each in search.space.items()}

    def ask(self, known: Sequence[Known], number: int, attempt: int = 0) -> Trial | None:
        """The settings of the trial of that number, from those `known`; None where a grid has no more. Another
        `attempt` gives others.

        The first trial has the job's own settings where the space holds them, so that the others are seen beside it.
        """
        seed = (self._search.seed + number) * _ASKS + attempt
        ended = tuple(each.trial.number for each in known if each.row.state in _STATES)
        in_hand = tuple(each.trial.number for each in known if each.row.state not in _STATES)
        trial = Trial(search=self._search.name, number=number, params={}, seed=seed, known=ended, in_hand=in_hand)
        if self._search.sampler == "grid":
            params = self._from_grid([each.trial.params for each in known], attempt)
            return msgspec.structs.replace(trial, params=params) if params is not None else None
        own = self.own_settings()
        if number == attempt == 0 and own is not None:
            return msgspec.structs.replace(trial, params=own)
        study = self._made(known, self._sampler(seed))
        asked = study.ask(self._distributions)
        attrs = study.trials[-1].system_attrs
        params = {name: _decoded(value) for name, value in asked.params.items()}
        return msgspec.structs.replace(trial, params=params, attrs=attrs)

    def worse(self, known: Sequence[Known], number: int) -> tuple[bool, dict[str, Any]]:
        """Whether the trial of that number is to be stopped early, by what it has reported last, and Optuna's notes
        on it from now on.
        """
        pruner = self._pruner()
        study = self._made(known, None, pruner)
        at = next(index for index, trial in enumerate(study.trials) if trial.number == number)
        return pruner.prune(study, study.trials[at]), study.trials[at].system_attrs

    def importance(self, known: Sequence[Known]) -> dict[str, float]:
        """How much each field decides whether a trial is among the better ones by the first goal, the largest first."""
        if len(self._search.goals) > 1:
            first = msgspec.structs.replace(self._search, goals=self._search.goals[:1])
            rows = [Known(each.trial, msgspec.structs.replace(each.row, values=each.row.values[:1])) for each in known]
            return Study(first, load_catalogue()).importance(rows)
        study = self._made(known)
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(complete) < LEAST_FOR_IMPORTANCE or len({trial.value for trial in complete}) < 2:
            return {}
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
        return {name: round(float(share), 4) for name, share in found.items() if math.isfinite(share)}

    def front(self, known: Sequence[Known]) -> tuple[int, ...]:
        """The completed trials than which no other is better by one goal and as good by all; of one goal the best
        one.
        """
        study = self._made(known)
        if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            return ()
        best = [study.best_trial] if len(self._search.goals) == 1 else study.best_trials
        return tuple(trial.number for trial in best)

    def _made(
        self,
        known: Iterable[Known],
        sampler: optuna.samplers.BaseSampler | None = None,
        pruner: optuna.pruners.BasePruner | None = None,
    ) -> optuna.Study:
        """A study of the trials `known`, each at its number; those that are missing have failed."""
        study = optuna.create_study(
            study_name=self._search.name,
            directions=["maximize" if goal.higher_is_better else "minimize" for goal in self._search.goals],
            sampler=sampler or optuna.samplers.RandomSampler(seed=0),
            pruner=pruner or optuna.pruners.NopPruner(),
        )
        by_number = {each.trial.number: each for each in known}
        last = max(by_number, default=-1)
        study.add_trials([self._frozen(by_number.get(number)) for number in range(last + 1)])
        return study

    def _frozen(self, known: Known | None) -> FrozenTrial:
        if known is None:
            return create_trial(state=TrialState.FAIL)
        row, state = known.row, _STATES.get(known.row.state, TrialState.RUNNING)
        several = len(self._search.goals) > 1
        if state == TrialState.PRUNED and (several or not row.reported):
            state = TrialState.FAIL
        params = {name: _encoded(value) for name, value in known.trial.params.items()}
        values = [value for value in row.values if value is not None] if state == TrialState.COMPLETE else None
        if state == TrialState.PRUNED:
            values = [row.values[0] or 0.0]
        return create_trial(
            state=state,
            values=values,
            params=params,
            distributions=self._distributions,
            system_attrs=known.trial.attrs,
            intermediate_values={} if several else row.reported,
        )

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        trials = self._search.budget.trials or 100
        match self._search.sampler:
            case "random":
                return optuna.samplers.RandomSampler(seed=seed)
            case "nsgaii":
                return optuna.samplers.NSGAIISampler(seed=seed, population_size=min(50, max(4, trials // 5)))
            case _:
                startup = min(10, max(4, trials // 3))
                return optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)

    def _pruner(self) -> optuna.pruners.BasePruner:
        epochs = self._search.space.get("epochs")
        most = self._search.job.epochs
        if epochs is not None:
            most = int(epochs.high) if isinstance(epochs, Range) else max(map(_whole, epochs.values))
        match self._search.pruner:
            case "hyperband":
                return optuna.pruners.HyperbandPruner(1, most, REDUCTION)
            case "halving":
                return optuna.pruners.SuccessiveHalvingPruner(1, REDUCTION)
            case "median":
                return optuna.pruners.MedianPruner(n_startup_trials=4)
            case _:
                return optuna.pruners.NopPruner()

    def _distribution(self, name: str, dimension: Dimension) -> BaseDistribution:
        if isinstance(dimension, Choices):
            return CategoricalDistribution([_encoded(value) for value in dimension.values])
        field = self._fields[name]
        if field is not None and field.kind == "int":
            return IntDistribution(int(dimension.low), int(dimension.high), dimension.log, int(dimension.step or 1))
        return FloatDistribution(dimension.low, dimension.high, dimension.log, dimension.step)

    def own_settings(self) -> dict[str, Any] | None:
        """The job's own values of the fields that vary; None where one of them lies outside the space."""
        own = {name: _plain(_of(self._search.job, name, field)) for name, field in self._fields.items()}
        inside = all(_holds(self._distributions[name], _encoded(value)) for name, value in own.items())
        return own if inside else None

    def _from_grid(self, tried: Sequence[dict[str, Any]], index: int) -> dict[str, Any] | None:
        """One of the combinations that have not been tried: in a random order, since the budget may not suffice for
        all.
        """
        values = [grid_values(each, self._fields[name]) or () for name, each in self._search.space.items()]
        order = list(itertools.product(*(map(_plain, each) for each in values)))
        random.Random(self._search.seed).shuffle(order)
        left = (params for each in order if (params := dict(zip(self._search.space, each, strict=True))) not in tried)
        return next(itertools.islice(left, index, None), None)


def _of(job: Job, name: str, field: Any) -> Any:
    if name.startswith(OPTION):
        return job.options.get(name.removeprefix(OPTION), field.default)
    return getattr(job, name)


def _holds(distribution: BaseDistribution, value: CategoricalChoiceType) -> bool:
    """Whether a value lies in a distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        create_trial(state=TrialState.RUNNING, params={"": value}, distributions={"": distribution})
    except ValueError:
        return False
    return True


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    return _decoded(_encoded(value))


def _whole(value: Any) -> int:
    return int(value)


def _encoded(value: Any) -> CategoricalChoiceType:
    """A value as Optuna takes it: of lists their JSON."""
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _decoded(value: CategoricalChoiceType) -> Any:
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value
