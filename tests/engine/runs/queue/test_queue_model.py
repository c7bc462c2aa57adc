"""Random sequences of queue operations, compared with a simple model of the queue."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.runs.queue import QueueSlot, hold, list_holders, list_waiting, move, release
from tests.engine.runs.queue.slots import abandon, make_slot

DEVICES = st.sets(st.sampled_from(("cpu", "GPU-0", "GPU-1")), min_size=1)


@dataclass(eq=False)
class Run:
    """Expected state of a run in the queue."""

    name: str
    slot: QueueSlot
    devices: set[str]
    is_waiting: bool = True
    is_held: bool = False


class QueueMachine(RuleBasedStateMachine):
    """State machine that applies each operation to real slots and to a list of expected states."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Run] = []
        """Expected states of all runs. Waiting runs are in queue order."""
        self.numbers = count()

    def waiting(self) -> list[Run]:
        return [run for run in self.runs if run.is_waiting]

    def pick(self, number: int) -> Run:
        return self.runs[number % len(self.runs)]

    def can_start(self, run: Run) -> bool:
        in_front = [other for other in self.waiting()[: self.waiting().index(run)] if not other.is_held]
        blocking = [*(other for other in self.runs if not other.is_waiting), *in_front]
        return not run.is_held and all(run.devices.isdisjoint(other.devices) for other in blocking)

    def poll(self, run: Run) -> None:
        if run.is_waiting and self.can_start(run):
            run.is_waiting = False
        run.slot.poll()
        assert run.slot.has_devices is not run.is_waiting

    @rule(devices=DEVICES, at_once=st.booleans())
    def enters(self, devices: set[str], at_once: bool) -> None:
        name = f"run-{next(self.numbers)}"
        start = "at_once" if at_once else "when_free"
        run = Run(name, make_slot(name, *sorted(devices), start=start), devices, is_waiting=not at_once)
        self.runs.append(run)
        self.poll(run)

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, 50))
    def polls(self, number: int) -> None:
        self.poll(self.pick(number))

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, 50), killed=st.booleans())
    def ends(self, number: int, killed: bool) -> None:
        run = self.pick(number)
        self.runs.remove(run)
        abandon(run.slot) if killed else run.slot.close()

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, 50), positions=st.integers(-4, 4))
    def is_moved(self, number: int, positions: int) -> None:
        run, order = self.pick(number), self.waiting()
        assert move(run.name, positions) is run.is_waiting
        if run.is_waiting:
            target = max(0, order.index(run) + positions)
            order.remove(run)
            order.insert(target, run)
            self.runs = [*(other for other in self.runs if not other.is_waiting), *order]

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, 50), held=st.booleans())
    def is_held_or_released(self, number: int, held: bool) -> None:
        run = self.pick(number)
        assert (hold if held else release)(run.name) is run.is_waiting
        if run.is_waiting:
            run.is_held = held

    @invariant()
    def queue_matches_model(self) -> None:
        expected = [(run.name, position, run.is_held) for position, run in enumerate(self.waiting(), 1)]
        assert [(ticket.run_id, ticket.position, ticket.held) for ticket in list_waiting()] == expected
        running = [run for run in self.runs if not run.is_waiting]
        found = {device: set(names) for device, names in list_holders().items()}
        assert found == {
            device: {run.name for run in running if device in run.devices}
            for device in set().union(*(run.devices for run in running))
        }

    def teardown(self) -> None:
        for run in self.runs:
            run.slot.close()


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=30, stateful_step_count=25)
