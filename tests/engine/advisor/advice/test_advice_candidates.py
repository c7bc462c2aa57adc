"""Which ways to train come into question."""

from __future__ import annotations

import msgspec

from engine.advisor.advice.candidates import numbers, thriftier, ways
from engine.contract.advice import changed
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.system import paths

SAMPLE = str(paths.sample_dataset())


def test_that_all_strategies_are_considered_and_each_says_why_it_cannot_run() -> None:
    catalogue = load_catalogue()
    asked = Job(dataset=SAMPLE, devices=("cpu", "cpu"), strategy="ddp", learning_rate=0.3)
    found = ways(asked, catalogue)
    assert len({way.job for way in found}) == len(found)
    assert [way.job for way in found if way.own] == [asked]
    able = [way for way in found if not way.refusal]
    assert {way.job.strategy for way in able} == {"single", "ddp", "zero1", "fsdp", "model_parallel", "pipeline"}
    assert "CUDA GPUs only" in next(way.refusal for way in found if way.job.strategy == "dp")
    assert {way.job.pipeline_schedule for way in able} == {"gpipe", "1f1b", "interleaved_1f1b", "zb1p", "zbv"}
    assert all(way.job.batch_size == 32 and way.job.learning_rate == 0.3 for way in found)
    assert all(changed(asked, way.candidate(asked)) == way.job for way in able)


def test_that_eight_gpus_give_some_hundred_ways_and_none_that_the_job_decides_itself() -> None:
    gpus = tuple(f"GPU-{number}" for number in range(8))
    asked = Job(dataset=SAMPLE, model="vit_b_16", devices=gpus, strategy="ddp", batch_size=64, precision="fp32")
    able = [way for way in ways(asked, load_catalogue()) if not way.refusal]
    assert 30 < len(able) < 200
    assert {len(way.job.devices) for way in able} == {1, 2, 4, 8}
    assert {way.job.precision for way in able} == {"fp32"}
    assert numbers(6) == [1, 2, 4, 6]


def test_that_what_does_not_fit_is_made_thriftier_by_what_costs_least_first() -> None:
    catalogue = load_catalogue()
    asked = Job(dataset=SAMPLE, model="resnet18", batch_size=32)
    less = list(thriftier(next(way for way in ways(asked, catalogue) if way.own), asked, catalogue))
    assert [way.job.accumulation for way in less[:5]] == [2, 4, 8, 16, 32]
    assert not any(way.job.activation_checkpointing for way in less[:5])
    assert less[5].job.activation_checkpointing
    assert "activation checkpointing" in less[5].name
    assert not any(way.job.precision == "bf16" for way in less)
    on_gpu = msgspec.structs.replace(asked, devices=("GPU-0",), precision="fp32")
    less = list(thriftier(next(way for way in ways(on_gpu, catalogue) if way.own), on_gpu, catalogue))
    first = next(number for number, way in enumerate(less) if way.job.precision == "bf16")
    assert all(way.job.precision == "bf16" for way in less[first:])
    assert first > 5
