"""From an order to the answer: what comes into question is estimated, then tried until it is known what is fastest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from engine.advisor.advice import kept
from engine.advisor.advice.answer import answer, renewed
from engine.advisor.advice.candidates import Way, thriftier, ways
from engine.advisor.advice.estimates import ROOM, at_best_s, correction, estimate
from engine.advisor.advice.known import Known
from engine.advisor.advice.measured import Footprint, TrialOrder
from engine.advisor.advice.ranking import DROPPED, Tried, drop_slow, is_settled, ranked
from engine.advisor.advice.trials import footprint, rehearse, try_way
from engine.advisor.batch_finder import ran_out
from engine.advisor.workers import TrialFolder, import_for
from engine.contract.advice import Advice, AdviceOrder, AdviceProgress, AdviceRefused
from engine.contract.catalogue import MeshDimension, StrategyEntry, load_catalogue
from engine.contract.events import Failed
from engine.contract.job import Job
from engine.contract.problems import Problem

LEAST_STEPS, LEAST_S = 5, 0.4
"""The steps of the first round's trials, and how long these go on at least; each round doubles both."""
ROUNDS = 5
REHEARSED = 0.2
"""The share of the time that is kept for the rehearsal of the fastest."""
UNTRIED_S = 6.0
"""How long a trial is thought to take before there was any."""
HOPE = 0.8
"""A sibling may be this much faster than what its parts and the measured one say together."""
VARIED = 1.15
"""The settings of ways that take this many times as long as the fastest of their kind are not varied."""

SUPERLINEAR = 1.1
"""So many times the number of devices is more speed than several of them have."""
TOO_LARGE = "By the estimate they need more memory than a device has."

Say = Callable[[AdviceProgress], object]


def advise(order: AdviceOrder, say: Say) -> Advice | AdviceRefused:
    """The answer to `order`, kept or measured; Ctrl+C (KeyboardInterrupt) ends the trials, and the answer is what is
    known by then.
    """
    recalled = None if order.again else kept.recall(order)
    if recalled is not None:
        return renewed(order, recalled)
    begun, advisor = time.monotonic(), _Advisor(order, say)
    try:
        refused = advisor.work()
        if refused is not None:
            return refused
    except KeyboardInterrupt:
        advisor.known.stop()
    advisor.known.took_s = time.monotonic() - begun
    found = answer(advisor.known)
    if found.ended_by != "stopped" and found.fits:
        kept.keep(order, kept.Kept(found, order.seconds, advisor.known.machine_step))
    return found


def _kind(tried: Tried) -> tuple[str, int]:
    return tried.way.job.strategy, len(tried.way.job.devices)


def _leaves_room(less: Tried, failed: Tried) -> bool:
    return less.estimated is None or failed.estimated is None or ROOM * less.estimated <= failed.estimated


class _Advisor:
    """The work on one order."""

    def __init__(self, order: AdviceOrder, say: Say) -> None:
        self._order, self._say = order, say
        self._catalogue = load_catalogue()
        self._begun = time.monotonic()
        self._what = ""
        self.known = Known(order, self._catalogue)

    @property
    def _left_s(self) -> float:
        return self._begun + self._order.seconds - time.monotonic()

    def work(self) -> AdviceRefused | None:
        known, job = self.known, self._order.job
        self._tell("Loading PyTorch")
        before = time.monotonic()
        mesh: tuple[MeshDimension, ...] = ("replicate",) if len(job.devices) > 1 else ()
        import_for(msgspec.structs.replace(job, strategy=self._catalogue.recommended_strategy(*mesh).id))
        known.import_s = time.monotonic() - before
        with TrialFolder() as name:
            folder = Path(name)
            self._tell("Estimating memory")
            looked = footprint(job, folder, self._left_s)
            if isinstance(looked, Failed) and not ran_out(looked):
                return AdviceRefused((Problem("", looked.cause, "Correct the job, then ask again."),))
            known.footprint = looked if isinstance(looked, Footprint) else None
            if known.footprint is not None and known.footprint.plain is not None:
                known.memory_by = "fake_tensors"
            self._consider(ways(job, self._catalogue))
            self._try_all(folder)
            if known.tried and ranked(known.tried)[0].steps:
                self._rehearse(ranked(known.tried)[0], folder)
        return None

    def _consider(self, found: list[Way]) -> None:
        """Leaves out what cannot run, and makes what does not fit thriftier."""
        known = self.known
        for way in found:
            known.considered += 1
            if way.refusal:
                known.leave_out("rules", way, way.refusal)
                continue
            tried = Tried(way, estimated=self._estimate(way.job))
            if self._fits(tried):
                known.waiting.append(tried)
                continue
            known.leave_out("memory", way, TOO_LARGE)
            less = None if way.varies else next(self._that_fit(way), None)
            if less is not None and less.way.job not in {each.way.job for each in known.waiting}:
                known.considered += 1
                known.waiting.append(less)

    def _that_fit(self, way: Way) -> Iterator[Tried]:
        """What takes less memory than `way`, as far as it fits by the estimate; what costs least first."""
        known = self.known.footprint
        for less in thriftier(way, self._order.job, self._catalogue):
            tried = Tried(less, estimated=self._estimate(less.job))
            no_blocks = known is not None and known.plain is not None and tried.estimated is None
            if self._fits(tried, room=1 / ROOM) and not no_blocks:
                yield tried

    def _estimate(self, job: Job) -> int | None:
        known = self.known
        if known.footprint is None:
            return None
        return estimate(job, self._entry(job), known.footprint, known.correction)

    def _fits(self, tried: Tried, room: float = ROOM) -> bool:
        footprint = self.known.footprint
        return footprint is None or tried.estimated is None or tried.estimated <= room * min(footprint.limits)

    def _try_all(self, folder: Path) -> None:
        """Rounds of trials, each of twice as many steps as the last."""
        known = self.known
        self._try_one_device(folder)
        for number in range(ROUNDS):
            whole = self._round(number, folder)
            running = [each for each in known.tried if each.state == "measured"]
            if not running:
                return
            kept = drop_slow(running)
            if not whole:
                return
            if not known.waiting and is_settled(kept):
                break
        known.ended_by = "settled"

    def _round(self, number: int, folder: Path) -> bool:
        """Tries each way of a round; False where the time is up before."""
        queue = self._queue(number)
        while queue:
            tried = queue.pop(0)
            if not tried.trials and not self._may_be_best(tried):
                continue
            if not self._in_time(tried, number):
                self.known.waiting += [each for each in (tried, *queue) if not each.trials]
                return False
            self._try(tried, number, folder, len(queue))
            if number == 0 and tried.state == "too_large":
                queue[:0] = self._instead(tried)
        return True

    def _queue(self, number: int) -> list[Tried]:
        """Whom to try in a round: first all that stand by themselves, as fast as they can be; then those still in the
        running, and what varies one setting of the fastest.
        """
        known = self.known
        waiting, known.waiting = known.waiting, []
        if number == 0:
            known.waiting = [each for each in waiting if each.way.varies]
            first = [each for each in waiting if not each.way.varies]
            return sorted(first, key=self._at_best)
        running = [each for each in known.tried if each.state == "measured"]
        bases = [each for each in running if not each.way.varies]
        best = min((each.step_s for each in bases), default=0.0)
        near = {each.way.name for each in bases if each.step_s <= VARIED * best}
        varied = []
        for each in waiting:
            if each.way.varies in near:
                varied.append(each)
            else:
                known.leave_out(
                    "cost", each.way, "They vary a setting of what is slower than others, or was not tried."
                )
        return [*varied, *running, *self._held_up()]

    def _held_up(self) -> list[Tried]:
        """One device's way where it took so long in its only trial that several devices are much faster than their
        number.
        """
        known, alone = self.known, self.known.alone
        best = ranked(known.tried)[0]
        if alone is None or alone.trials > 1 or alone.state == "measured":
            return []
        return [alone] if best.speed.median > SUPERLINEAR * len(best.way.job.devices) * alone.speed.median else []

    def _try_one_device(self, folder: Path) -> None:
        """One device's step, from which the others' costs are foreseen. What does not fit there is tried with less
        memory.
        """
        known = self.known
        alone = [each for each in known.waiting if not each.way.varies and len(each.way.job.devices) == 1]
        while alone:
            tried = alone.pop(0)
            known.waiting.remove(tried)
            self._try(tried, 0, folder, len(known.waiting), smaller=True)
            if tried.steps:
                self._learn(tried)
                return
            if tried.state == "too_large":
                alone = self._instead(tried)
                known.waiting[:0] = alone

    def _learn(self, alone: Tried) -> None:
        """Takes from one device's trial what memory the activations take, and judges the others anew."""
        known = self.known
        job, entry = alone.way.job, self._entry(alone.way.job)
        if known.footprint is None or alone.memory is None:
            return
        known.correction = correction(alone.memory[0], job, entry, known.footprint)
        known.memory_by = "one_device"
        waiting, known.waiting = known.waiting, []
        for tried in waiting:
            tried.estimated = self._estimate(tried.way.job)
            if self._fits(tried):
                known.waiting.append(tried)
            else:
                known.leave_out("memory", tried.way, TOO_LARGE)
                if not tried.way.varies:
                    known.waiting += list(self._that_fit(tried.way))[:1]

    def _instead(self, failed: Tried) -> list[Tried]:
        """The next thriftier way after one that ran out of memory: one whose estimate leaves room below that one's,
        which was too low. Where there is none and nothing has fitted yet, the next but one, so that few trials lead
        to what fits.
        """
        known = self.known
        at_hand = {each.way.job for each in (*known.tried, *known.waiting)}
        found = [each for each in self._that_fit(failed.way) if each.way.job not in at_hand]
        enough = [each for each in found if _leaves_room(each, failed)]
        if not enough and not any(each.steps for each in known.tried):
            enough = found[1:] or found
        known.considered += len(enough[:1])
        return enough[:1]

    def _try(self, tried: Tried, number: int, folder: Path, left: int, *, smaller: bool = False) -> None:
        known = self.known
        if tried not in known.tried:
            known.tried.append(tried)
        best = min((each.step_s for each in known.tried), default=float("inf"))
        several = len(tried.way.job.devices) > 1
        order = TrialOrder(
            least_steps=LEAST_STEPS * 2**number,
            seconds=LEAST_S * 2**number,
            give_up_s=DROPPED * best if best < float("inf") else self._left_s / 4,
            smaller=smaller,
            link=several and known.link is None and self._entry(tried.way.job).process_per_device,
        )
        tried.why = ""
        self._tell(f"Trying {tried.way.name}", left, trying=tried)
        try_way(tried, order, folder, max(1.0, self._left_s - REHEARSED / 2 * self._order.seconds))
        if tried.measured is not None and tried.measured.link is not None:
            known.link = tried.measured.link
        self._tell(f"Tried {tried.way.name}", left)

    def _may_be_best(self, tried: Tried) -> bool:
        """Whether its parts, and what was measured of its siblings, allow it to be the fastest; if not, it is left
        out.
        """
        known = self.known
        best = min((each.step_s for each in known.tried if each.steps), default=float("inf"))
        least = self._at_best(tried)
        siblings = (
            [] if tried.way.varies else [each for each in known.tried if each.steps and _kind(each) == _kind(tried)]
        )
        if siblings:
            least = max(least, HOPE * min(each.step_s * least / max(1e-9, self._at_best(each)) for each in siblings))
        if least <= best or tried.way.job.precision == "bf16":  # whose compute is another
            return True
        known.leave_out("cost", tried.way, "What their parts cost makes them slower than the fastest, at best.")
        return False

    def _at_best(self, tried: Tried) -> float:
        """The least seconds of its step; 0 where one device's is not known."""
        costs = self.known.costs
        return 0.0 if costs is None else at_best_s(tried.way.job, self._entry(tried.way.job), costs)

    def _in_time(self, tried: Tried, number: int) -> bool:
        walls = [each.wall_s for each in self.known.tried if each.wall_s]
        usual = tried.wall_s or (sum(walls) / len(walls) if walls else UNTRIED_S)
        return usual + LEAST_S * 2**number / 2 < self._left_s - REHEARSED * self._order.seconds

    def _rehearse(self, best: Tried, folder: Path) -> None:
        self._tell(f"Rehearsing {best.way.name}", trying=best)
        each_s = max(0.5, min(5.0, self._left_s / 7))
        found = rehearse(best, each_s, folder, max(1.0, self._left_s))
        if found is not None:
            self.known.rehearsal, self.known.started_s, self.known.rehearsed = *found, best

    def _entry(self, job: Job) -> StrategyEntry:
        entry = self._catalogue.strategy(job.strategy)
        assert entry is not None
        return entry

    def _tell(self, what: str, left: int = 0, trying: Tried | None = None) -> None:
        known = self.known
        table = [*ranked(known.tried), *known.waiting]
        shown = tuple(
            msgspec.structs.replace(known.row(each), **({"state": "trying"} if each is trying else {}))
            for each in table
        )
        done = 1 - max(0.0, self._left_s) / self._order.seconds
        self._say(
            AdviceProgress(
                fraction=min(1.0, done),
                what=what,
                seconds_left=max(0.0, self._left_s),
                considered=known.considered,
                left=left,
                table=shown,
            )
        )
