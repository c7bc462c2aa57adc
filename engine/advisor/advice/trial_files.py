"""Orders to the advisor's workers and their results, exchanged as files in the folder of a trial."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.system.files import MAX_RESULT_BYTES, read_file

_ORDER = "order.msgpack"


class TrialOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a trial."""

    min_steps: int = 5
    """Minimum number of timed steps after the warm-up."""
    seconds: float = 0.5
    """Minimum duration of the timed steps."""
    give_up_s: float = float("inf")
    """Duration of a step, in seconds, above which the trial stops."""
    smaller: bool = False
    """True to also time steps with a quarter of the batch."""
    link: bool = False
    """True to also time an all-reduce."""
    rehearse_s: float = 0.0
    """Maximum time in seconds for training, and for validation, as in a run. 0 for no rehearsal."""


class Link(msgspec.Struct, frozen=True):
    """Speed of an all-reduce over all ranks in a trial."""

    bytes_per_second: float
    latency_s: float
    ranks: int


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of training and validation as in a run, in seconds."""

    cold_step_s: float
    """Duration of a step whose images are decoded for the first time."""
    warm_step_s: float
    """Duration of a step in any epoch after the first."""
    start_s: float
    """Additional duration of the first step in an epoch."""
    validation_s: float
    """Duration of a full validation. It is extrapolated if the validation was not completed."""
    validated: float
    """Fraction of the validation that was completed."""
    save_s: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one rank."""

    step_s: tuple[float, ...]
    """Duration of each step on the slowest rank, in seconds."""
    memory: dict[str, tuple[int, int]]
    """Peak use and limit in bytes of each kind of memory, by its name."""
    worked_s: float
    """Duration of the trial after preparation."""
    gave_up: bool = False
    load_rate: float | None = None
    """Images per second that the loaders of all ranks deliver when nothing else runs. None for data without files."""
    smaller_step_s: float | None = None
    smaller_batch: int = 0
    joules_per_image: float | None = None
    """Energy used by all GPUs of the job."""
    backward_share: float | None = None
    """Duration of the backward pass as a fraction of both passes."""
    link: Link | None = None
    rehearsal: Rehearsal | None = None


class Activations(msgspec.Struct, frozen=True):
    """Bytes that the forward pass stores for the backward pass."""

    fixed: float
    per_image: float
    largest: float
    """Bytes of the largest tensor per image, which is the working memory needed by the backward pass."""


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the job's model and data in bytes, known before any step."""

    parameter_bytes: int
    trained_bytes: int
    last_bytes: int
    """Bytes in the last bucket of gradients."""
    buffer_bytes: int
    block_bytes: int
    """Bytes of the parameters in the largest block."""
    base_bytes: int
    """Memory of a CPU worker before the model is built."""
    limits: tuple[int, ...]
    image_bytes: int
    prefetched_batches: int
    """Number of prefetched batches."""
    plain: Activations | None
    checkpointed: Activations | None
    train_images: int
    val_images: int
    settled_precision: str
    halved: float = 1.0
    """Ratio of the activations with bf16 to those with fp32."""


def write_order(folder: Path, order: TrialOrder) -> None:
    """Write the order for the next trial and delete the results of the previous one."""
    for file in folder.glob("found-*"):
        file.unlink()
    (folder / _ORDER).write_bytes(msgspec.msgpack.encode(order))


def read_order(folder: str) -> TrialOrder:
    return msgspec.msgpack.decode(read_file(Path(folder, _ORDER), MAX_RESULT_BYTES), type=TrialOrder)


def write_result(folder: str, rank: int, result: Measured | Footprint) -> None:
    Path(folder, f"found-{rank}.msgpack").write_bytes(msgspec.msgpack.encode(result))


def take_footprint(folder: Path) -> Footprint:
    """Read and delete the footprint that rank 0 has written."""
    file = folder / "found-0.msgpack"
    footprint = msgspec.msgpack.decode(read_file(file, MAX_RESULT_BYTES), type=Footprint)
    file.unlink()
    return footprint


def take_measurements(folder: Path) -> list[Measured]:
    """Read and delete the measurements of all ranks, sorted by rank."""
    measurements = []
    for file in sorted(folder.glob("found-*.msgpack"), key=lambda path: int(path.stem.partition("-")[2])):
        measurements.append(msgspec.msgpack.decode(read_file(file, MAX_RESULT_BYTES), type=Measured))
        file.unlink()
    return measurements
