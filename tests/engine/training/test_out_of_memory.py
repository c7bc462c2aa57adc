"""Devices that run out of memory. The step must be repeated in smaller chunks, which later steps use, too."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.contract.events import Failed, StepMetrics, Validation, Warned
from engine.contract.job import Job
from engine.strategies.memory import DoesNotFit, is_out_of_memory, run_in_parts
from tests.support.same_states import find_differences

Make = Callable[..., Job]
Start = Callable[..., Any]
Write = Callable[[str], dict[str, str]]

LIMITED = """
import random
import torch
from torch import nn

def _as_a_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

def _as_the_cpu():
    torch.empty(1 << 50)

def _for_real():
    torch.empty(1 << 50, device="cuda")

class Limited(nn.Module):
    '''Has no memory for more than so many images at once in `where`, from its pass `since` there on; it has moved
    statistics and drawn random numbers by then.'''
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(784, classes))
        self.passes = 0

    def forward(self, x):
        made = self.layers(x) + 0.01 * random.random() * self.training
        if self.training == {training}:
            self.passes += 1
            if self.passes >= {since} and len(x) > {most}:
                {how}()
        return made

def build_model(num_classes):
    return Limited(num_classes)
"""


def _format_limited_source(max_images: int, *, training: bool = True, since: int = 1, how: str = "_as_the_cpu") -> str:
    return LIMITED.format(most=max_images, training=training, since=since, how=how)


def _messages(group: Any) -> list[str]:
    return [warning.message for warning in group.of(Warned) if warning.code == "out_of_memory"]


def _assert_same_end(actual: Any, expected: Any) -> None:
    one, other = actual.checkpoint(), expected.checkpoint()
    assert not [
        name for key in ("model", "optimizer", "random") for name in find_differences(one[key], other[key], key)
    ]


@pytest.mark.parametrize("how", ["_as_the_cpu", pytest.param("_as_a_gpu", marks=pytest.mark.long)])
def test_oom_in_first_step_equals_accumulation(job: Make, start: Start, model_file: Write, how: str) -> None:
    fields = {"epochs": 2, "optimizer": "adamw", "ema_decay": 0.5, **model_file(_format_limited_source(3, how=how))}
    group = start(job(**fields), every_step=True).completed()
    from_the_start = start(job(accumulation=4, **fields), every_step=True).completed()
    assert _messages(from_the_start) == []
    assert _messages(group) == [
        "The CPU ran out of memory at step 1: each batch is now processed in 4 parts of 3 images, which trains "
        "the same, except for BatchNorm, which sees one part at a time. A smaller image size, bf16 or activation "
        "checkpointing needs less memory."
    ]
    assert group.losses == from_the_start.losses
    assert [event.measures for event in group.of(Validation)] == [
        event.measures for event in from_the_start.of(Validation)
    ]
    _assert_same_end(group, from_the_start)
    assert group.checkpoint()["job"]["accumulation"] == 4
    # A run that resumes with the unchanged job keeps the four parts; a job with more parts gets them.
    again = start(job(**fields | {"epochs": 3}, resume_from=str(group.folder / "checkpoints/last.pt"))).completed()
    assert _messages(again) == [
        "Each batch is processed in 4 parts, as in the resumed run after it had run out of memory."
    ]
    assert (again.checkpoint()["job"]["accumulation"], again.checkpoint()["parts"]["asked"]) == (4, 1)
    last = str(again.folder / "checkpoints/last.pt")
    finer = start(job(**fields | {"epochs": 4}, accumulation=6, resume_from=last)).completed()
    assert _messages(finer) == []
    assert finer.checkpoint()["job"]["accumulation"] == 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU on this machine")
def test_oom_on_gpu_raises_accumulation(job: Make, start: Start, model_file: Write) -> None:
    gpu = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    fields = {"devices": (gpu,), "epochs": 2, "precision": "fp32", "compile": "off"}
    # BatchNorm and dropout would differ between a batch and its parts.
    network = _format_limited_source(3, since=3, how="_for_real").replace("nn.Dropout(0.3)", "nn.Identity()")
    fields |= model_file(network.replace("nn.BatchNorm2d(4)", "nn.Identity()"))
    group = start(job(**fields), every_step=True).completed()
    (message,) = _messages(group)
    assert message.startswith(
        "GPU 0 of the run ran out of memory at step 3: each batch is now processed in 4 parts of 3"
    )
    single = start(job(**fields, accumulation=4), every_step=True).completed()
    assert group.losses == pytest.approx(single.losses, rel=0.02)


def test_oom_in_later_step_equals_resumed_run(job: Make, start: Start, model_file: Write) -> None:
    fields = {"epochs": 2, "clip_norm": 0.5, **model_file(_format_limited_source(3, since=9))}
    checkpoints = {"checkpoint_steps": 8, "keep_checkpoints": 10}
    group = start(job(**fields, **checkpoints), every_step=True).completed()
    (message,) = _messages(group)
    assert message.startswith("The CPU ran out of memory at step 9: each batch is now processed in 4 parts of 3 images")
    assert [metrics.step for metrics in group.of(StepMetrics)] == list(range(1, 13))
    before = group.folder / "checkpoints/epoch-2-step-8.pt"
    assert group.checkpoint(before.name)["job"]["accumulation"] == 1
    rest = start(job(**fields, accumulation=4, resume_from=str(before)), every_step=True).completed()
    assert rest.losses == group.losses[8:]
    assert _messages(rest) == []
    _assert_same_end(group, rest)


def test_oom_in_validation_divides_batches(job: Make, start: Start, model_file: Write) -> None:
    limited = start(job(epochs=2, **model_file(_format_limited_source(3, training=False))), every_step=True).completed()
    assert _messages(limited) == [
        "The CPU ran out of memory during validation after step 6: each validation batch is now processed in 4 parts, "
        "which gives the same metrics."
    ]
    single = start(job(epochs=2, **model_file(_format_limited_source(100))), every_step=True).completed()
    assert limited.losses == single.losses
    assert [event.images for event in limited.of(Validation)] == [21, 21]
    for actual, expected in zip(limited.of(Validation), single.of(Validation), strict=True):
        assert actual.measures == pytest.approx(expected.measures, rel=1e-5)
    assert limited.checkpoint()["parts"] == {"asked": 1, "evaluation": 4}


def test_oom_of_single_image_fails(job: Make, start: Start, model_file: Write) -> None:
    group = start(job(**model_file(_format_limited_source(0, since=3))), every_step=True)
    assert group.finish() == [1]
    (failed,) = group.of(Failed)
    assert (failed.kind, failed.step) == ("out_of_memory", 3)
    assert failed.cause == (
        "Out of memory on the CPU at step 3, even with a single image at a time. Set a smaller image size, or choose "
        "bf16, activation checkpointing, a smaller model or a device with more memory."
    )
    assert "DefaultCPUAllocator" in (group.folder / failed.traceback_file).read_text()
    assert _messages(group) == []


@pytest.mark.parametrize("training", [pytest.param(True, marks=pytest.mark.long), False])
@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.long)])
def test_oom_of_one_rank_fails_with_remedy(
    job: Make, start: Start, model_file: Write, *, strategy: str, training: bool
) -> None:
    fields = {"cpus": 2, "strategy": strategy, **model_file(_format_limited_source(3, training=training))}
    group = start(job(**fields), every_step=True)
    assert group.finish() == [1, 1]
    assert {failed.step for failed in group.of(Failed)} == {1 if training else 6}
    assert "out_of_memory" in {failed.kind for failed in group.of(Failed)}
    # The last batch of the validation has 9 images, which leave the second rank's last part empty.
    enough = start(job(accumulation=5, **fields), every_step=True).completed()
    assert _messages(enough) == []
    assert enough.of(Validation)[0].images == 21


def test_oom_retry_halves_parts_to_one_image() -> None:
    tried: list[int] = []

    def fits(parts: int) -> str:
        tried.append(parts)
        if parts < 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return "made"

    assert run_in_parts(fits, 1, 3) == ("made", 3)
    assert tried == [1, 2, 3]
    with pytest.raises(DoesNotFit):
        run_in_parts(fits, 1, 2)
    tried.clear()
    with pytest.raises(torch.OutOfMemoryError):
        run_in_parts(fits, 1, 3, can_retry=lambda: False)
    assert tried == [1]


def test_oom_retry_frees_memory_before_retrying() -> None:
    alive: list[bool] = []
    references: list[Any] = []

    class Activation:
        itself: Any = None

    def make(parts: int) -> None:
        alive.extend(reference() is not None for reference in references)
        activation = Activation()
        activation.itself = activation  # a reference cycle, as between the frames of a traceback
        references.append(weakref.ref(activation))
        if parts < 4:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    run_in_parts(make, 1, 8)
    assert len(references) == 3
    assert not any(alive)


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (MemoryError(), True),
        (RuntimeError("cuBLAS failed: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"), True),
        (torch.AcceleratorError("CUDA error: out of memory"), True),
        (torch.distributed.DistBackendError("NCCL error\nLast error:\nCuda failure 2 'out of memory'"), True),
        (RuntimeError("shape '[3]' is invalid"), False),
        (ValueError("DefaultCPUAllocator"), False),
    ],
)
def test_is_out_of_memory_recognizes_errors(error: Exception, is_memory: bool) -> None:
    assert is_out_of_memory(error) == is_memory


def test_is_out_of_memory_recognizes_cpu_allocator() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("fitting", "sizes", "error", "images"), [(9, [1, 2, 4, 5], DoesNotFit, 1), (4, [1, 2, 4], DoesNotFit, 3), (1, [1], ValueError, 0)]
)  # fmt: skip
def test_oom_retry_ends_with_parts_that_batchnorm_refuses(
    fitting: int, sizes: list[int], error: type[Exception], images: int
) -> None:
    """Run out of memory with fewer than `fitting` parts of five images. More parts are too small for BatchNorm."""
    tried: list[int] = []

    def process(parts: int) -> torch.Tensor:
        tried.append(parts)
        if parts < fitting:
            raise MemoryError
        output: torch.Tensor = torch.nn.BatchNorm1d(3)(torch.ones(1, 3))
        return output

    with pytest.raises(error) as raised:
        run_in_parts(process, 1, 5)
    assert (tried, type(raised.value), getattr(raised.value, "images", 0)) == (sizes, error, images)
