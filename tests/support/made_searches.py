"""Builders of search folders with realistic content."""

from __future__ import annotations

import math
import random
import time
from typing import Any

from engine.contract.job import Job
from engine.contract.search import Budget, Choices, Goal, Range, Search, SearchState, TrialRow, TrialState
from engine.runs.searches import SearchFolder, create_search
from engine.system import paths

TOP1 = Goal(measure="top1", title="Top-1 accuracy", higher_is_better=True, percent=True)
SECONDS = Goal(measure="seconds", title="Training time", higher_is_better=False)
EPOCHS = 30
SPACE = {
    "learning_rate": Range(low=1e-4, high=1e-1, log=True),
    "weight_decay": Range(low=1e-6, high=1e-2, log=True),
    "momentum": Range(low=0.8, high=0.99),
    "label_smoothing": Range(low=0.0, high=0.2),
    "optimizer": Choices(values=("sgd", "adamw", "lamb")),
}


def make_search_config(name: str = "flowers", trials: int = 40, *, goals: int = 1, **fields: Any) -> Search:
    job = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, epochs=EPOCHS)
    of = {"job": job, "space": SPACE, "goals": (TOP1, SECONDS)[:goals], "budget": Budget(trials=max(1, trials))}
    return Search(name=name, **(of | fields))  # type: ignore[arg-type]


def make_trial(number: int, state: TrialState = "completed", goals: int = 1) -> TrialRow:
    """Make a trial of a search for accuracy or, with two `goals`, for accuracy and training time.

    The settings and the learning curve are derived from `number`.
    """
    chance = random.Random(number)
    rate, decay = 10 ** chance.uniform(-4, -1), 10 ** chance.uniform(-6, -2)
    params = {
        "learning_rate": rate,
        "weight_decay": decay,
        "momentum": chance.uniform(0.8, 0.99),
        "label_smoothing": chance.uniform(0, 0.2),
        "optimizer": chance.choice(("sgd", "adamw", "lamb")),
    }
    top = 0.93 - 0.06 * (math.log10(rate) + 2.2) ** 2 - 0.004 * (math.log10(decay) + 4) ** 2 + chance.gauss(0, 0.01)
    epochs = {"pruned": chance.choice((3, 9)), "running": 12, "waiting": 0, "failed": 2}.get(state, EPOCHS)
    curve = {
        epoch: max(0.1, top * (1 - 0.7 * math.exp(-epoch / 6)) + chance.gauss(0, 0.004))
        for epoch in range(1, epochs + 1)
    }
    best = max(curve.values()) if curve else None
    seconds = 8.0 * epochs * (1 + params["momentum"] * chance.random())
    return TrialRow(
        number=number,
        run_id=f"20261124-1200{number:04}-abcd",
        state=state,
        params=params,
        values=(best, seconds if curve else None)[:goals],
        reported=curve,
        epoch=epochs,
        epochs=EPOCHS,
        seconds=seconds,
    )


def make_state(count: int, *, running: int = 0, goals: int = 1, **fields: Any) -> SearchState:
    """Make the state of a search with `count` trials and `goals` objectives. `fields` override its fields.

    The last `running` trials have not finished: if there are several, the last one is waiting, and the others are
    running. In a search with one objective, every third of the finished trials was pruned. A few trials failed.
    """

    def state(number: int) -> TrialState:
        if number >= count - running:
            return "waiting" if number == count - 1 and running > 1 else "running"
        return "pruned" if goals == 1 and number % 3 == 2 else "failed" if number % 17 == 13 else "completed"

    rows = tuple(make_trial(number, state(number), goals) for number in range(count))
    done = [row for row in rows if row.state == "completed" and row.values[0] is not None]
    best = max(done, key=lambda row: row.values[0] or 0, default=None)
    front = [
        row.number
        for row in done
        if not any(
            other is not row
            and all(better(a, b) for a, b, better in zip(other.values, row.values, _BETTER, strict=False))
            for other in done
        )
    ]
    importance = {
        "learning_rate": 0.61,
        "weight_decay": 0.2,
        "optimizer": 0.1,
        "momentum": 0.06,
        "label_smoothing": 0.03,
    }
    of = {
        "trials": rows,
        "best": best.number if best is not None and goals == 1 else None,
        "front": tuple(front),
        "importance": importance if len(done) >= 4 else {},
        "worked_s": 95.0 * count,
        "seconds_left": 7200.0 if running else None,
        "total": count + 20 if running else count,
        "ended": "" if running else "completed",
    }
    return SearchState(time=time.time(), **(of | fields))  # type: ignore[arg-type]


_BETTER = (lambda a, b: a >= b, lambda a, b: a <= b)


def make_search(name: str, count: int, *, running: int = 0, goals: int = 1) -> SearchFolder:
    """Create the folder of a search with `count` trials and `goals` objectives.

    The last `running` trials have not finished.
    """
    folder = create_search(make_search_config(name, count, goals=goals))
    folder.save_state(make_state(count, running=running, goals=goals))
    return folder
