"""What workers of the advisor are ordered and what they measure; the files in which both lie in the folder of a
trial.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

_ORDER = "order.msgpack"


class TrialOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How a trial is to go: `least_steps` timed steps after the untimed ones, and more until they took `seconds`.

    It ends at once when a step takes longer than `give_up_s`. `smaller` also times steps of a quarter of the batch,
    `link` what the ranks take to add up numbers. With `rehearse_s`, it also trains and validates as a run does, each
    for so long at most.
    """

    least_steps: int = 5
    seconds: float = 0.5
    give_up_s: float = float("inf")
    smaller: bool = False
    link: bool = False
    rehearse_s: float = 0.0


class Link(msgspec.Struct, frozen=True):
    """What an all-reduce takes: a share for its bytes and one for its own. Measured over all ranks of a trial."""

    bytes_per_second: float
    latency_s: float
    ranks: int


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """Training and validation as in a run. `cold_step_s` is a step's whose images have yet to be decoded,
    `warm_step_s` one of a later epoch, `begin_s` how much longer an epoch's first step takes; `validation_s` is the
    whole validation's, `validated` the share of it that was made.
    """

    cold_step_s: float
    warm_step_s: float
    begin_s: float
    validation_s: float
    validated: float
    save_s: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank measured. `step_s` are seconds of steps, the slowest rank's; `memory` what was used at most and
    what there is, in bytes, of each thing that may run out. `worked_s` is what all took from when it was prepared on.
    `load_rate` is how many images a second all ranks' loaders bring where nothing else is done, once they are
    decoded, None where the data are no files. `joules_per_image` are those of all GPUs of the job. `backward_share`
    is that of the backward pass in both passes.
    """

    step_s: tuple[float, ...]
    memory: dict[str, tuple[int, int]]
    worked_s: float
    gave_up: bool = False
    load_rate: float | None = None
    smaller_step_s: float | None = None
    smaller_batch: int = 0
    joules_per_image: float | None = None
    backward_share: float | None = None
    link: Link | None = None
    rehearsal: Rehearsal | None = None


class Activations(msgspec.Struct, frozen=True):
    """What the forward pass keeps for the backward pass, in bytes: `fixed` whatever the batch, `per_image` of each
    image, and `largest`, the largest of it, per image, for what the backward pass works with.
    """

    fixed: float
    per_image: float
    largest: float


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the job's model and data before any step, in bytes. `base_bytes` is what a worker takes on the
    CPU before there is a model, `block_bytes` the parameters of the largest block, `last_bytes` the last bucket of
    gradients, `ahead` how many batches wait ready, `halved` the share of the activations that bf16 leaves.
    """

    parameter_bytes: int
    trained_bytes: int
    last_bytes: int
    buffer_bytes: int
    block_bytes: int
    base_bytes: int
    limits: tuple[int, ...]
    image_bytes: int
    ahead: int
    plain: Activations | None
    checkpointed: Activations | None
    train_images: int
    val_images: int
    settled_precision: str
    halved: float = 1.0


def give_order(folder: Path, order: TrialOrder) -> None:
    """Leaves an order for the workers of the next trial, and nothing of the last one."""
    for left in folder.glob("found-*"):
        left.unlink()
    (folder / _ORDER).write_bytes(msgspec.msgpack.encode(order))


def read_order(folder: str) -> TrialOrder:
    return msgspec.msgpack.decode(Path(folder, _ORDER).read_bytes(), type=TrialOrder)


def leave(folder: str, rank: int, found: Measured | Footprint) -> None:
    """Leaves what a rank has found."""
    Path(folder, f"found-{rank}.msgpack").write_bytes(msgspec.msgpack.encode(found))


def collect_footprint(folder: Path) -> Footprint:
    """What `leave` left; the file is gone then."""
    file = folder / "found-0.msgpack"
    found = msgspec.msgpack.decode(file.read_bytes(), type=Footprint)
    file.unlink()
    return found


def collect(folder: Path) -> tuple[Measured, tuple[dict[str, tuple[int, int]], ...]]:
    """What rank 0 has left, and each rank's memory; the files are gone then."""
    found = []
    for file in sorted(folder.glob("found-*.msgpack"), key=lambda path: int(path.stem.partition("-")[2])):
        found.append(msgspec.msgpack.decode(file.read_bytes(), type=Measured))
        file.unlink()
    return found[0], tuple(each.memory for each in found)
