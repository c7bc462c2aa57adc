"""Fields that have no effect, and the warnings about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.checks.job_checks import problems
from engine.contract.catalogue import load_catalogue
from engine.contract.idle_fields import DECISIVE, find_idle_by_needs, find_idle_fields, idle_field_warnings
from engine.contract.job import FIELDS, Job
from tests.support.golden import check_section

CATALOGUE = load_catalogue()
GPU = "GPU-11111111-2222-3333-4444-555555555555"


def test_needs_name_possible_values_of_earlier_fields() -> None:
    order = list(FIELDS)
    for name, field in FIELDS.items():
        for need in field.needs:
            for other in need.fields:
                assert order.index(other) < order.index(name)  # one pass must find all idle fields
                assert set(need.values) <= set(FIELDS[other].choices)
                assert other in DECISIVE
    assert not find_idle_by_needs({"weight_decay": 0.1}).keys() & {"decay_norms", "momentum", "final_rate"}


CASES: list[tuple[dict[str, Any], set[str], set[str]]] = [
    ({"optimizer": "sgd"}, {"beta2"}, {"momentum", "nesterov"}),
    ({"optimizer": "sgd", "momentum": 0.0}, {"nesterov", "beta2"}, {"momentum"}),
    ({"optimizer": "adamw"}, {"nesterov"}, {"momentum", "beta2"}),
    ({"weight_decay": 0.0}, {"decay_norms"}, {"weight_decay"}),
    ({"schedule": "step"}, {"final_rate"}, {"milestones", "warmup_epochs"}),
    ({"schedule": "cosine"}, {"milestones", "warmup_start"}, {"final_rate", "warmup_steps"}),
    ({"schedule": "cosine", "warmup_steps": 3}, {"milestones"}, {"warmup_start"}),
    ({"schedule": "onecycle", "warmup_steps": 3}, {"warmup_start", "warmup_steps", "warmup_epochs"}, set()),
    ({"ema_decay": None}, {"ema_ramp"}, {"ema_decay"}),
    ({"ema_decay": 0.99}, set(), {"ema_ramp"}),
    ({"augmentation": "none"}, {"transforms", "mirror"}, {"augmentation"}),
    ({"augmentation": "own"}, set(), {"transforms", "mirror"}),
    ({"epochs": 5, "freeze_epochs": 5}, {"layer_decay"}, {"head_rate"}),
    ({"epochs": 5, "freeze_epochs": 4}, set(), {"layer_decay"}),
    ({"task": "segmentation", "model": "unet", "loss": "dice"}, {"class_weights", "mixup"}, {"encoder"}),
    ({"task": "multilabel", "loss": "dice"}, {"loss"}, {"class_weights"}),  # an invalid loss changes nothing
    ({"task": "road_extraction", "model": "hourglass_mtl"}, {"head_rate"}, {"layer_decay"}),
    ({"model": "vgg11"}, {"freeze_batchnorm"}, {"dropout"}),
    ({"model": "timm:resnet50"}, set(), {"freeze_batchnorm", "dropout"}),  # unknown model
    ({"task": "edge_detection", "model": "hed"}, {"multi_scale"}, {"image_size"}),
    ({"devices": ()}, {"wait_for_others", "on_lost_device"}, {"cpu_threads"}),
    ({"devices": ("cpu",)}, {"wait_for_others"}, {"cpu_threads"}),
    ({"devices": (GPU,)}, {"cpu_threads"}, {"wait_for_others"}),
    ({"devices": (GPU,), "start": "at_once"}, {"wait_for_others"}, set()),
    ({"devices": ("a:cpu", "a:cpu")}, {"on_lost_device"}, set()),
    ({"devices": ("cpu", "a:cpu")}, set(), {"on_lost_device"}),
    ({"devices": ("cpu", "a:cpu"), "restarts": 0}, {"on_lost_device"}, set()),
    ({"strategy": "pipeline"}, {"compile", "memory_format", "bucket_mib", "stages_per_device"}, {"split_points"}),
    ({"task": "unknown", "model": "unknown", "strategy": "unknown"}, set(), {"mixup", "encoder", "split_points"}),
    ({"devices": (GPU, "cpu")}, {"on_lost_device"}, {"cpu_threads"}),
    ({"devices": (GPU, GPU.replace("1", "6"))}, {"cpu_threads"}, {"on_lost_device"}),
    ({"task": "detection", "model": "ssd300_vgg16"}, {"loss", "class_weights"}, set()),
]


@pytest.mark.parametrize(("values", "idle", "used"), CASES)
def test_idle_fields_depend_on_other_fields(values: dict[str, Any], idle: set[str], used: set[str]) -> None:
    found = find_idle_fields({"model": "resnet18"} | values, CATALOGUE)
    assert idle <= found.keys()
    assert not used & found.keys()


def describe_idle(values: dict[str, Any]) -> dict[str, str]:
    found = find_idle_fields({"model": "resnet18"} | values, CATALOGUE)
    return {name: f"{name} {idle.why}; {idle.instead}" for name, idle in sorted(found.items())}


def test_texts_of_idle_fields() -> None:
    plain = describe_idle({})
    lines = list(plain.values())
    for values, _, _ in CASES:
        changed = describe_idle(values)
        lines += [f"{values}:", *(f"  - {name}" for name in plain if name not in changed)]
        lines += [f"  + {text}" for name, text in changed.items() if text != plain.get(name)]
    check_section(Path(__file__).with_name("golden_idle_fields.txt"), "idle fields", "\n".join(lines))


def test_idle_field_warnings_accept_fields_that_are_off() -> None:
    def warned(**fields: Any) -> list[str]:
        job = Job.from_fields(model="resnet18", strategy="pipeline", devices=("cpu", "cpu"), **fields)
        return [problem.field for problem in idle_field_warnings(job, CATALOGUE)]

    assert warned(compile="off", memory_format="contiguous") == []
    assert warned(compile="on", memory_format="channels_last") == ["memory_format", "compile"]


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ({"beta2": 0.9}, "rmsprop, adam, adamw, nadam, radam or lamb"),
        ({"warmup_start": 0.5}, "Warm-up epochs or Warm-up steps"),
        ({"ema_ramp": 5}, "Weight average"),
        ({"transforms": ("flip",)}, "set Augmentation to own"),
        ({"task": "detection", "model": "ssd300_vgg16", "mixup": 0.2}, "Set it to 0."),
        ({"wait_for_others": True}, "Turn it off, or train on GPUs."),
    ],
)
def test_idle_field_warnings_name_idle_fields(tmp_path: Path, fields: dict[str, Any], remedy: str) -> None:
    (problem,) = problems(Job.from_fields(**({"dataset": str(tmp_path), "model": "resnet18"} | fields)), CATALOGUE)
    assert (problem.severity, problem.field in fields) == ("warning", True)
    assert remedy in problem.remedy
