"""Data in the files of a trial's folder: the request to the advisor's workers, and the workers' results."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.advisor.trial_results import delete_results
from engine.system.files import MAX_RESULT_BYTES, read_file

_REQUEST = "request.msgpack"


class TrialRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request for a trial: the measurements that its workers make, and their limits."""

    min_steps: int = 5
    """Minimum number of timed steps after the warm-up."""
    seconds: float = 0.5
    """Minimum duration of the timed steps."""
    give_up_s: float = float("inf")
    """Maximum duration of a step in seconds. After a longer step, the trial ends."""
    times_smaller: bool = False
    """True to also time steps with a quarter of the batch."""
    times_link: bool = False
    """True to also time an all-reduce."""
    rehearse_s: float = 0.0
    """Maximum time in seconds for training as in a run, and for validation as in a run. It is 0 for no rehearsal."""


class LinkSpeed(msgspec.Struct, frozen=True):
    """Speed of all-reduces over all ranks of a trial."""

    bytes_per_second: float
    latency_s: float
    ranks: int


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """Durations, in seconds, of training and validation as in a run."""

    cold_step_s: float
    """Duration of a step in the first epoch, including the decoding of its images."""
    warm_step_s: float
    """Duration of a step in any later epoch, with images that are already decoded."""
    start_s: float
    """Additional duration of the first step in an epoch."""
    validation_s: float
    """Duration of a full validation. If the validation was cut short, it is extrapolated."""
    validated: float
    """Fraction of the validation that was completed before its time limit."""
    save_s: float


class RankMeasurements(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements on one rank in a trial."""

    step_s: tuple[float, ...]
    """Duration of each step on the slowest rank, in seconds."""
    memory: dict[str, tuple[int, int]]
    """Peak use and limit, in bytes, of each memory, by the name of the memory: "memory", "GPU 0"."""
    worked_s: float
    """Duration of the trial without the preparation of the workers."""
    gave_up: bool = False
    load_rate: float | None = None
    """Images per second that the loaders of all ranks deliver if nothing else runs. None if no files are loaded."""
    smaller_step_s: float | None = None
    smaller_batch: int = 0
    joules_per_image: float | None = None
    """Energy that all GPUs of the job use per image. None if it is unknown."""
    backward_share: float | None = None
    """Duration of the backward pass as a fraction of the forward and backward pass. None if it is unknown."""
    link: LinkSpeed | None = None
    rehearsal: Rehearsal | None = None


class Activations(msgspec.Struct, frozen=True):
    """Sizes of the tensors that the forward pass stores for the backward pass, in bytes."""

    fixed: float
    per_image: float
    largest: float
    """Size of the largest tensor per image, which the backward pass needs as working memory."""


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the job's model and data, which can be measured without a training step."""

    parameter_bytes: int
    trained_bytes: int
    last_bytes: int
    """Size of DDP's last bucket of gradients."""
    buffer_bytes: int
    block_bytes: int
    """Size of the parameters in the largest block."""
    base_bytes: int
    """Memory of a CPU worker before the model is built."""
    limits: tuple[int, ...]
    image_bytes: int
    prefetched_batches: int
    """Number of batches that are prefetched to the device."""
    activations: Activations | None
    checkpointed_activations: Activations | None
    train_images: int
    val_images: int
    resolved_precision: str
    bf16_fraction: float = 1.0
    """Size of the activations with bf16 as a fraction of those with fp32."""


def write_request(folder: Path, request: TrialRequest) -> None:
    """Write the request for the next trial to the folder of trials, and delete the results of the previous one."""
    delete_results(folder)
    (folder / _REQUEST).write_bytes(msgspec.msgpack.encode(request))


def read_request(folder: str) -> TrialRequest:
    return msgspec.msgpack.decode(read_file(Path(folder, _REQUEST), MAX_RESULT_BYTES), type=TrialRequest)
