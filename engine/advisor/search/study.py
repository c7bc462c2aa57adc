"""Decisions that a search leaves to Optuna: next settings, early stopping, importance of fields, and best trials.

Optuna stores nothing. For each decision, a study is built in memory from the trials (20 ms for 500 trials). The
decision therefore depends only on the trials and a seed, and is the same after a restart.
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
from optuna.trial import FrozenTrial, TrialState, create_trial

from engine.checks.space_checks import field_of, list_grid_values
from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.job import Job
from engine.contract.search import OPTION, Choices, Dimension, Range, Search, Trial, TrialRow

optuna.logging.set_verbosity(optuna.logging.WARNING)

REDUCTION = 3
"""Reduction factor of Hyperband and successive halving: at each rung, one trial in this many continues."""
MIN_FOR_IMPORTANCE = 4
_SEEDS_PER_TRIAL = 1_000
"""Number of seeds reserved for each trial. More than one is needed if the first settings are impossible."""

_STATES = {
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "stopped": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


@dataclass(frozen=True)
class KnownTrial:
    """Trial with its current row in the table of trials."""

    trial: Trial
    row: TrialRow


class Study:
    """Optuna study of a search. `catalogue` provides the types of the varied fields."""

    def __init__(self, search: Search, catalogue: Catalogue) -> None:
        self._search = search
        self._fields = {name: field_of(search.job, name, catalogue) for name in search.space}
        self._distributions = {name: self._to_distribution(name, each) for name, each in search.space.items()}

    def ask(self, known: Sequence[KnownTrial], number: int, attempt: int = 0) -> Trial | None:
        """Choose the settings for trial `number`, given the `known` trials.

        Return None if a grid has no more combinations. Another `attempt` yields other settings. The first trial has the
        job's requested settings as a baseline, if the search space includes them.
        """
        seed = (self._search.seed + number) * _SEEDS_PER_TRIAL + attempt
        ended = tuple(each.trial.number for each in known if each.row.state in _STATES)
        active = tuple(each.trial.number for each in known if each.row.state not in _STATES)
        trial = Trial(search=self._search.name, number=number, params={}, seed=seed, known=ended, in_hand=active)
        if self._search.sampler == "grid":
            params = self._pick_from_grid([each.trial.params for each in known], attempt)
            return msgspec.structs.replace(trial, params=params) if params is not None else None
        requested = self.job_settings()
        if number == attempt == 0 and requested is not None:
            return msgspec.structs.replace(trial, params=requested)
        study = self._build_study(known, self._create_sampler(seed))
        asked = study.ask(self._distributions)
        attrs = study.trials[-1].system_attrs
        params = {name: _decode(value) for name, value in asked.params.items()}
        return msgspec.structs.replace(trial, params=params, attrs=attrs)

    def should_prune(self, known: Sequence[KnownTrial], number: int) -> tuple[bool, dict[str, Any]]:
        """Decide if the trial `number` should be stopped early because of its latest result.

        Returns:
            True to stop the trial, and the system attributes that Optuna has set on it.
        """
        pruner = self._create_pruner()
        study = self._build_study(known, pruner=pruner)
        is_pruned = pruner.prune(study, study.trials[number])
        return is_pruned, study.trials[number].system_attrs

    def compute_importance(self, known: Sequence[KnownTrial]) -> dict[str, float]:
        """Return the importance of each varied field for good results by the first goal, in descending order.

        The result is empty if too few trials are complete, or if all have the same result.
        """
        if len(self._search.goals) > 1:
            first = msgspec.structs.replace(self._search, goals=self._search.goals[:1])
            rows = [
                KnownTrial(each.trial, msgspec.structs.replace(each.row, values=each.row.values[:1])) for each in known
            ]
            return Study(first, load_catalogue()).compute_importance(rows)
        study = self._build_study(known)
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(complete) < MIN_FOR_IMPORTANCE or len({trial.value for trial in complete}) < 2:
            return {}
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances  # imports scikit-learn

        importances = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
        return {name: round(float(value), 4) for name, value in importances.items() if math.isfinite(value)}

    def compute_front(self, known: Sequence[KnownTrial]) -> tuple[int, ...]:
        """Return the numbers of the completed trials on the Pareto front.

        No other trial is better in one goal and as good in the other. For a single goal, this is the best trial.
        """
        study = self._build_study(known)
        if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            return ()
        best = [study.best_trial] if len(self._search.goals) == 1 else study.best_trials
        return tuple(trial.number for trial in best)

    def _build_study(
        self,
        known: Iterable[KnownTrial],
        sampler: optuna.samplers.BaseSampler | None = None,
        pruner: optuna.pruners.BasePruner | None = None,
    ) -> optuna.Study:
        """Build an Optuna study from the `known` trials.

        Each trial keeps its number. Trials that are missing before the last one are added as failed.
        """
        study = optuna.create_study(
            study_name=self._search.name,
            directions=["maximize" if goal.higher_is_better else "minimize" for goal in self._search.goals],
            sampler=sampler or optuna.samplers.RandomSampler(seed=0),
            pruner=pruner or optuna.pruners.NopPruner(),
        )
        by_number = {each.trial.number: each for each in known}
        last = max(by_number, default=-1)
        study.add_trials([self._to_frozen_trial(by_number.get(number)) for number in range(last + 1)])
        return study

    def _to_frozen_trial(self, known: KnownTrial | None) -> FrozenTrial:
        """Convert a trial to Optuna's format. None, for a missing trial, becomes a failed trial."""
        if known is None:
            return create_trial(state=TrialState.FAIL)
        row, state = known.row, _STATES.get(known.row.state, TrialState.RUNNING)
        values: list[float] | None = None
        has_several_goals = len(self._search.goals) > 1
        # Optuna ranks pruned trials by their intermediate values, which it doesn't support with several goals.
        if state == TrialState.PRUNED and (has_several_goals or not row.reported):
            state = TrialState.FAIL
        if state == TrialState.COMPLETE:
            values = [value for value in row.values if value is not None]
        elif state == TrialState.PRUNED:  # Optuna's `tell` gives pruned trials a value, too
            values = [row.values[0] or 0.0]
        return create_trial(
            state=state,
            values=values,
            params={name: _encode(value) for name, value in known.trial.params.items()},
            distributions=self._distributions,
            system_attrs=known.trial.attrs,
            intermediate_values={} if has_several_goals else row.reported,
        )

    def _create_sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """Create Optuna's sampler for the search. TPE starts with n_trials / 3 random trials, clamped to 4..10."""
        trials = self._search.budget.trials or 100
        match self._search.sampler:
            case "random":
                return optuna.samplers.RandomSampler(seed=seed)
            case "nsgaii":
                return optuna.samplers.NSGAIISampler(seed=seed, population_size=min(50, max(4, trials // 5)))
            case _:
                startup = min(10, max(4, trials // 3))
                return optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)

    def _create_pruner(self) -> optuna.pruners.BasePruner:
        """Create Optuna's pruner for the search. If the number of epochs is varied, it assumes the largest one."""
        epochs = self._search.space.get("epochs")
        max_epochs = self._search.job.training.epochs
        if isinstance(epochs, Range):
            max_epochs = int(epochs.high)
        elif epochs is not None:
            max_epochs = max(int(value) for value in epochs.values)  # type: ignore[arg-type]
        match self._search.pruner:
            case "hyperband":
                return optuna.pruners.HyperbandPruner(
                    min_resource=1, max_resource=max_epochs, reduction_factor=REDUCTION
                )
            case "halving":
                return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
            case "median":
                return optuna.pruners.MedianPruner(n_startup_trials=4)
            case _:
                return optuna.pruners.NopPruner()

    def _to_distribution(self, name: str, dimension: Dimension) -> BaseDistribution:
        """Convert a dimension of the search space, which varies the field `name`, to Optuna's type."""
        if isinstance(dimension, Choices):
            return CategoricalDistribution([_encode(value) for value in dimension.values])
        field = self._fields[name]
        if field is not None and field.kind == "int":
            return IntDistribution(int(dimension.low), int(dimension.high), dimension.log, int(dimension.step or 1))
        return FloatDistribution(dimension.low, dimension.high, dimension.log, dimension.step)

    def job_settings(self) -> dict[str, Any] | None:
        """Return the values that the varied fields have in the search's job, by name.

        Returns None if one of the values is outside the search space.
        """
        settings = {
            name: _to_json_value(_get_job_value(self._search.job, name, field)) for name, field in self._fields.items()
        }
        is_inside = all(_contains(self._distributions[name], _encode(value)) for name, value in settings.items())
        return settings if is_inside else None

    def _pick_from_grid(self, tried: Sequence[dict[str, Any]], index: int) -> dict[str, Any] | None:
        """Return the combination at `index` among those that are not in `tried`, or None if there are not that many.

        Combinations are in random order, since the budget may not be enough for all of them.
        """
        values = [list_grid_values(each, self._fields[name]) or () for name, each in self._search.space.items()]
        order = list(itertools.product(*(map(_to_json_value, each) for each in values)))
        random.Random(self._search.seed).shuffle(order)
        combinations = (dict(zip(self._search.space, each, strict=True)) for each in order)
        untried = (params for params in combinations if params not in tried)
        return next(itertools.islice(untried, index, None), None)


def _get_job_value(job: Job, name: str, field: Any) -> Any:
    """Return the job's value of the field or option called `name` in the search space.

    `field` describes the field or option. The default of an option is returned if the job doesn't set it.
    """
    if name.startswith(OPTION):
        return job.options.get(name.removeprefix(OPTION), field.default)
    return job.value(name)


def _contains(distribution: BaseDistribution, value: CategoricalChoiceType) -> bool:
    """Return True if Optuna could choose `value` from the distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:  # Optuna has no public function for this, but checks the values of a trial
        create_trial(state=TrialState.RUNNING, params={"": value}, distributions={"": distribution})
    except ValueError:
        return False
    return True


def _to_json_value(value: Any) -> Any:
    """Convert a value to the form that it has in JSON, with lists in place of tuples."""
    return _decode(_encode(value))


def _encode(value: Any) -> CategoricalChoiceType:
    """Convert a value to one that Optuna can store. Lists and tuples, which it can't store, become JSON text."""
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _decode(value: CategoricalChoiceType) -> Any:
    """Convert the result of `_encode` back to the original value. Tuples become lists."""
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value
