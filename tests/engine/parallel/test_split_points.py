"""Pipeline stages, moved split points, and automatic split points, compared with all possible choices."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.contract.model_split import ModelSplit, Segment
from engine.parallel.balancing import SegmentCosts, divide
from engine.parallel.split_points import (
    CannotSplit,
    choose_points,
    compute_stages,
    find_best_points,
    move_point,
    reachable_points,
)  # fmt: skip

GIB = 2**30


def segment(number: int, forward_s: Sequence[float], **others: int) -> Segment:
    values = {"layers": 1, "parameters": 100, "activation_bytes": 1000, "output_bytes": 10} | others
    backward_s = tuple(2 * seconds for seconds in forward_s)
    return Segment(f"p{number}", f"m{number}", values["layers"], values["parameters"], tuple(forward_s), backward_s,
                   values["activation_bytes"], values["output_bytes"], f"b{number}")  # fmt: skip


def split_of(costs: Sequence[float], stage_ranks: tuple[int, ...] = (0, 1), **others: object) -> ModelSplit:
    """Return the split of a model in which the forward pass of segment i takes `costs[i]` seconds on every device.

    `stage_ranks[i]` is the device of stage i. `others` override fields of the split.
    """
    places = max(stage_ranks) + 1
    complete = ModelSplit(
        segments=tuple(segment(number, [cost] * places) for number, cost in enumerate(costs)),
        split_points=(),
        stage_ranks=stage_ranks,
        devices=("cpu",) * places,
        microbatch_size=4,
        microbatches=8,
        in_flight=(8,) * len(stage_ranks),
        state_bytes=12,
        memory_bytes=(None,) * places,
    )
    return msgspec.structs.replace(complete, **others)


def every_split(split: ModelSplit) -> list[ModelSplit]:
    points = itertools.combinations([each.split_point for each in split.segments[:-1]], len(split.stage_ranks) - 1)
    return [msgspec.structs.replace(split, split_points=chosen) for chosen in points]


def slowest(split: ModelSplit) -> float:
    """Return the time of the slowest device in seconds, or infinity if a stage doesn't fit into the memory."""
    stages = compute_stages(split)
    if any(stage.over_memory for stage in stages):
        return math.inf
    return max(
        sum(stage.seconds for stage in stages if stage.group_rank == place) for place in range(len(split.devices))
    )


def test_stages_have_contents_and_costs() -> None:
    memory_bytes = (20_000, 5_000)
    split = split_of(
        [1, 2, 3, 4], split_points=("p2",), in_flight=(2, 1), memory_bytes=memory_bytes, seconds_per_byte=0.1
    )
    first, last = compute_stages(split)
    assert (first.group_rank, first.device, first.first_module, first.last_module) == (0, "cpu", "b0", "m2")
    assert (first.layers, first.parameters, first.sent_bytes) == (3, 300, 10)
    assert first.seconds == pytest.approx(3 * (1 + 2 + 3) + 1.0)  # includes the wait for a gradient of 10 bytes
    assert first.memory_bytes == 300 * 12 + 2 * 3000
    assert not first.over_memory
    assert (last.first_module, last.last_module, last.sent_bytes) == ("b3", "m3", 0)
    assert last.seconds == pytest.approx(3 * 4 + 1.0)  # includes the wait for 10 bytes of activations
    assert last.memory_bytes == 100 * 12 + 1 * (1000 + 10)
    assert first.share + last.share == pytest.approx(1.0)
    assert first.share == pytest.approx(19 / 32)


def test_stages_of_full_device_do_not_fit() -> None:
    split = split_of([1] * 4, (0, 1, 1, 0), split_points=("p0", "p1", "p2"), memory_bytes=(10_000, 40_000))
    assert [stage.over_memory for stage in compute_stages(split)] == [True, False, False, True]


def test_stages_that_fill_their_devices_exactly_fit() -> None:
    split = split_of([0] * 4, split_points=("p1",))
    needed = [stage.memory_bytes for stage in compute_stages(split)]
    for spare, over in ((0, [False, False]), (1, [True, False])):
        full = msgspec.structs.replace(split, memory_bytes=(needed[0] - spare, needed[1]))
        stages = compute_stages(full)
        assert [stage.over_memory for stage in stages] == over
        assert [stage.share for stage in stages] == [0.5, 0.5], "stages that take no time have equal shares"


def test_recomputed_stage_retains_only_inputs() -> None:
    retaining = split_of([1, 1], split_points=("p0",))
    recomputed = msgspec.structs.replace(retaining, recomputed=True)
    assert compute_stages(retaining)[1].memory_bytes == 100 * 12 + 8 * (1000 + 10)
    assert compute_stages(recomputed)[1].memory_bytes == 100 * 12 + 8 * 10 + 1000
    assert [stage.seconds for stage in compute_stages(retaining)] == [3, 3]
    assert [stage.seconds for stage in compute_stages(recomputed)] == [4, 4]


def test_stages_of_one_device_transfer_nothing() -> None:
    split = split_of([1, 1, 1, 1], (0, 1, 1, 0), split_points=("p0", "p1", "p2"), seconds_per_byte=0.1)
    assert [stage.seconds for stage in compute_stages(split)] == pytest.approx([4, 4, 4, 4])


@pytest.mark.parametrize("split_points", [(), ("p0", "p1"), ("p9",), ("p3",)])
def test_stages_refuse_invalid_split_points(split_points: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="split"):
        compute_stages(split_of([1, 1, 1, 1], split_points=split_points))
    with pytest.raises(ValueError, match="order"):
        compute_stages(split_of([1, 1, 1, 1], (0, 1, 2), split_points=("p1", "p0")))


def test_moved_split_point_stays_between_neighbors() -> None:
    split = split_of([1] * 6, (0, 1, 2), split_points=("p1", "p3"), chosen=True)
    assert reachable_points(split, 0) == ("p0", "p1", "p2")
    assert reachable_points(split, 1) == ("p2", "p3", "p4")
    other = move_point(split, 0, "p2")
    assert (other.split_points, other.chosen) == (("p2", "p3"), False)
    with pytest.raises(ValueError, match="can't be at"):
        move_point(split, 0, "p3")
    with pytest.raises(ValueError, match="can't be at"):
        move_point(split, 1, "p5")


def test_automatic_marks_split_as_chosen() -> None:
    chosen = choose_points(split_of([1, 1, 1, 3], split_points=("p0",), chosen=False))
    assert (chosen.split_points, chosen.chosen) == (("p2",), True)


def test_automatic_gives_slow_device_less() -> None:
    segments = tuple(segment(number, (1.0, 3.0)) for number in range(8))
    split = choose_points(split_of([1] * 8, segments=segments))
    assert [stage.layers for stage in compute_stages(split)] == [6, 2]
    # The first stage is the slowest in any split.
    segments = (segment(0, (10.0,) * 3), *(segment(number, (1.0, 3.0, 1.0)) for number in range(1, 4)))
    split = choose_points(split_of([1] * 4, (0, 1, 2), segments=segments))
    assert [stage.layers for stage in compute_stages(split)] == [1, 1, 2]


def test_automatic_avoids_slow_transfers() -> None:
    segments = tuple(segment(number, (1.0, 1.0), output_bytes=1 if number == 1 else 1000) for number in range(6))
    assert find_best_points(split_of([1] * 6, segments=segments)) == ("p2",)
    assert find_best_points(split_of([1] * 6, segments=segments, seconds_per_byte=0.01)) == ("p1",)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=3, max_size=7), st.integers(2, 3))
def test_automatic_balances_phases_separately(passes: list[tuple[int, int]], places: int) -> None:
    split = split_of([float(forward) for forward, _ in passes], tuple(range(places)), phased=True)
    segments = [
        msgspec.structs.replace(each, backward_s=(float(backward),) * places)
        for each, (_, backward) in zip(split.segments, passes, strict=True)
    ]
    split = msgspec.structs.replace(split, segments=tuple(segments))

    def step(ends: Sequence[int]) -> int:
        spans = list(itertools.pairwise((0, *ends, len(passes))))
        return sum(max(sum(each[kind] for each in passes[start:end]) for start, end in spans) for kind in (0, 1))

    chosen = [int(place.removeprefix("p")) + 1 for place in find_best_points(split)]
    assert step(chosen) == min(map(step, itertools.combinations(range(1, len(passes)), places - 1)))


def test_automatic_prefers_fitting_memory() -> None:
    for limit, layers in ((18_400, [2, 4]), (18_399, [1, 5])):  # two segments need 18,400 bytes
        split = split_of([1] * 6, memory_bytes=(limit, None))
        assert [stage.layers for stage in compute_stages(choose_points(split))] == layers


def test_automatic_refuses_too_few_split_points() -> None:
    with pytest.raises(CannotSplit, match="can be split at 1 position, and 3 stages need 2") as refused:
        find_best_points(split_of([1, 1], (0, 1, 2)))
    assert refused.value.field == "devices"
    assert refused.value.remedy
    with pytest.raises(CannotSplit, match="can be split at 2 positions, and 4 stages need 3"):
        find_best_points(split_of([1, 1, 1], (0, 1, 2, 3)))
    assert find_best_points(split_of([1, 1, 1], (0, 1, 2))) == ("p0", "p1"), "all positions are needed"


@pytest.mark.parametrize(
    ("stage_ranks", "gib", "reason"),
    [
        ((0, 1), (40, 30), "CPU worker 0 would need at least 55.88 GiB and has 40.00 GiB free"),
        ((0, 1), (60, 8), "CPU worker 1 would need at least 11.18 GiB and has 8.00 GiB free"),
        ((0, 1, 0, 1), (40, 30), "CPU worker 0 would need at least 55.88 GiB and has 40.00 GiB free"),
        ((0, 1, 1, 0), (40, 30), "CPU worker 0 would need at least 55.88 GiB and has 40.00 GiB free"),
    ],
)
def test_automatic_refuses_too_large_model(stage_ranks: tuple[int, ...], gib: tuple[int, int], reason: str) -> None:
    segments = tuple(segment(number, (1.0, 1.0), parameters=10**9) for number in range(8))
    split = split_of([1] * 8, stage_ranks, segments=segments, memory_bytes=tuple(limit * GIB for limit in gib))
    for recomputed in (False, True):
        with pytest.raises(CannotSplit, match=reason) as refused:
            find_best_points(msgspec.structs.replace(split, recomputed=recomputed))
        assert ("activation checkpointing" in refused.value.remedy) != recomputed


def test_cannot_split_survives_pickling() -> None:
    refusal = pickle.loads(pickle.dumps(CannotSplit("it is too small", field="split_points", remedy="Take another.")))
    assert (str(refusal), refusal.field, refusal.remedy) == ("it is too small", "split_points", "Take another.")


def test_model_split_survives_json() -> None:
    split = choose_points(split_of([1, 2, 3, 4], memory_bytes=(None, GIB)))
    assert msgspec.json.decode(msgspec.json.encode(split), type=ModelSplit) == split


_SECONDS = st.floats(0.001, 10.0)
_BYTES = st.integers(0, 2000)


@st.composite
def _splits(draw: st.DrawFn, places: tuple[tuple[int, ...], ...], max_segments: int) -> ModelSplit:
    stage_ranks = draw(st.sampled_from(places))
    devices = max(stage_ranks) + 1
    count = draw(st.integers(len(stage_ranks), max(max_segments, len(stage_ranks))))
    segments = tuple(
        Segment(
            split_point=f"p{number}" if number < count - 1 else "",
            module=f"m{number}",
            layers=1,
            parameters=draw(_BYTES),
            forward_s=tuple(draw(_SECONDS) for _ in range(devices)),
            backward_s=tuple(draw(_SECONDS) for _ in range(devices)),
            activation_bytes=draw(_BYTES),
            output_bytes=draw(_BYTES),
        )
        for number in range(count)
    )
    return split_of(
        [],
        stage_ranks,
        segments=segments,
        in_flight=tuple(draw(st.integers(1, 8)) for _ in stage_ranks),
        memory_bytes=tuple(draw(st.none() | st.integers(1, 60_000)) for _ in range(devices)),
        seconds_per_byte=draw(st.sampled_from([0.0, 0.0001, 0.01])),
        recomputed=draw(st.booleans()),
    )


@settings(max_examples=150)
@given(_splits(((0,), (0, 1), (0, 1, 2), (0, 1, 2, 3)), 8))
def test_automatic_is_optimal_with_one_stage_per_device(split: ModelSplit) -> None:
    best = min(map(slowest, every_split(split)))
    if math.isinf(best):
        with pytest.raises(CannotSplit, match="do not fit"):
            find_best_points(split)
    else:
        assert slowest(choose_points(split)) == pytest.approx(best)


@settings(max_examples=60)
@given(_splits(((0, 1, 0, 1), (0, 1, 1, 0), (0, 1, 2, 0, 1, 2)), 9))
def test_automatic_is_optimal_for_small_models(split: ModelSplit) -> None:
    best = min(map(slowest, every_split(split)))
    assume(not math.isinf(best))
    assert slowest(choose_points(split)) == pytest.approx(best)


@settings(max_examples=40)  # use fixed examples, because the error has no upper bound
@given(_splits(((0, 1, 0, 1), (0, 1, 1, 0)), 12))
def test_automatic_is_near_optimal(split: ModelSplit) -> None:
    split = msgspec.structs.replace(split, memory_bytes=(None, None))
    best = min(map(slowest, every_split(split)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.parallel.balancing.MAX_EXHAUSTIVE", 60)
        assert slowest(choose_points(split)) <= 1.3 * best


def test_automatic_is_fast_for_deep_models() -> None:
    split = split_of([1.0 + number % 7 for number in range(1000)], tuple(range(8)), memory_bytes=(GIB,) * 8)
    shares = [stage.share for stage in compute_stages(choose_points(split))]
    assert max(shares) < 1.02 / 8


def make_costs(costs: list[int], sizes: list[int], ranks: tuple[int, ...], limits: tuple[float, ...]) -> SegmentCosts:
    def seconds(_stage: int, start: int, end: int) -> float:
        return sum(costs[start:end])

    def memory(_stage: int, start: int, end: int) -> float:
        return sum(sizes[start:end])

    return SegmentCosts(len(costs), ranks, seconds, seconds, memory, limits)


def test_automatic_improves_the_divisions_of_a_coarse_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.parallel.balancing.MAX_EXHAUSTIVE", 10)
    costs, sizes = [7, 1, 5, 9, 8, 7, 5, 8, 6], [4, 9, 3, 5, 3, 2, 5, 9, 3]
    expected = min(
        max(sum(costs[first:last]), sum(costs) - sum(costs[first:last]))
        for first, last in itertools.combinations(range(1, 9), 2)
        if last - first > 1 and sum(sizes[first:last]) <= 30 and sum(sizes) - sum(sizes[first:last]) <= 21
    )
    found = divide(make_costs(costs, sizes, (0, 1, 1, 0), (21, 30)))
    assert (found.excess, found.seconds) == (0, expected)


def test_automatic_takes_better_of_two_starts() -> None:
    costs = [3, 1, 2, 8, 3, 3, 2, 3, 2, 8, 1, 8, 1, 2, 1, 1, 8]
    sizes = [5, 2, 5, 1, 1, 5, 20, 1, 5, 20, 5, 2, 20, 20, 5, 1, 1]
    found = divide(make_costs(costs, sizes, (0, 1, 2, 2, 1, 0), (42.4,) * 3))
    assert found.excess < 0.07  # it is 0.085 for the split that minimizes the slowest stage
