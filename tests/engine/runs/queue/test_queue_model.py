"""The line against a plain model of it, through orders that nobody would think of."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.runs.queue import Line, hold, holders, move, release, waiting
from tests.engine.runs.queue.lines import a_line

DEVICES = st.sets(st.sampled_from(("cpu", "GPU-0", "GPU-1")), min_size=1)


@dataclass(eq=False)
class Run:
    """What is expected of a run; it `waits` until it has its devices."""

    name: str
    line: Line
    devices: set[str]
    waits: bool = True
    held: bool = False


class LineOfRuns(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Run] = []  # those that wait are in their order
        self.numbers = count()

    def waiting(self) -> list[Run]:
        return [run for run in self.runs if run.waits]

    def picked(self, number: int) -> Run:
        return self.runs[number % len(self.runs)]

    def may_start(self, run: Run) -> bool:
        before = [other for other in self.waiting()[: self.waiting().index(run)] if not other.held]
        in_the_way = [*(other for other in self.runs if not other.waits), *before]
        return not run.held and all(run.devices.isdisjoint(other.devices) for other in in_the_way)

    def look(self, run: Run) -> None:
        if run.waits and self.may_start(run):
            run.waits = False
        run.line.step()
        assert run.line.turn is not run.waits

    @rule(devices=DEVICES, at_once=st.booleans())
    def comes(self, devices: set[str], at_once: bool) -> None:
        name = f"run-{next(self.numbers)}"
        start = "at_once" if at_once else "when_free"
        run = Run(name, a_line(name, *sorted(devices), start=start), devices, waits=not at_once)
        self.runs.append(run)
        self.look(run)

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, 50))
    def steps(self, number: int) -> None:
        self.look(self.picked(number))

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, 50), killed=st.booleans())
    def ends(self, number: int, killed: bool) -> None:
        run = self.picked(number)
        self.runs.remove(run)
        if killed:  # of its process, the kernel closes all files
            assert run.line._descriptor is not None
            os.close(run.line._descriptor)
        else:
            run.line.close()

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, 50), places=st.integers(-4, 4))
    def is_moved(self, number: int, places: int) -> None:
        run, order = self.picked(number), self.waiting()
        assert move(run.name, places) is run.waits
        if run.waits:
            goal = max(0, order.index(run) + places)
            order.remove(run)
            order.insert(goal, run)
            self.runs = [*(other for other in self.runs if not other.waits), *order]

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, 50), held=st.booleans())
    def is_held_or_released(self, number: int, held: bool) -> None:
        run = self.picked(number)
        assert (hold if held else release)(run.name) is run.waits
        if run.waits:
            run.held = held

    @invariant()
    def stands_as_expected(self) -> None:
        expected = [(run.name, place, run.held) for place, run in enumerate(self.waiting(), 1)]
        assert [(ticket.run_id, ticket.position, ticket.held) for ticket in waiting()] == expected
        having = [run for run in self.runs if not run.waits]
        found = {device: set(names) for device, names in holders().items()}
        assert found == {
            device: {run.name for run in having if device in run.devices}
            for device in set().union(*(run.devices for run in having))
        }

    def teardown(self) -> None:
        for run in self.runs:
            run.line.close()


TestLineOfRuns = LineOfRuns.TestCase
TestLineOfRuns.settings = settings(max_examples=30, stateful_step_count=25)
