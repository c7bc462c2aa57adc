"""timm models for classification."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models import PretrainedCfg

from engine.checks.job_checks import problems
from engine.contract.catalogue import load_catalogue, weights_of
from engine.contract.job import Job
from engine.contract.weights import Weights, cached_path
from engine.models import timm_models
from engine.models.base import TaskError
from engine.models.encoders import IMAGENET
from engine.models.meta_device import build_on_meta
from engine.models.model_surgery import find_head
from engine.tasks.registry import TASKS
from tests.support.cases import mark_long_cases

TASK = TASKS["classification"]


@pytest.mark.parametrize(
    "name",
    mark_long_cases(
        timm_models.list_names(), everyday=[name for name in timm_models.list_names() if "resnest" in name]
    ),
)
def test_listed_models_return_the_classes(name: str) -> None:
    size = TASK.describe_model(name).image_size
    model = build_on_meta(lambda: TASK.build_model(Job.from_fields(model=name), 7, 3))
    assert model.training
    assert find_head(model, 7) is not None
    assert model(torch.empty(2, 3, size, size, device="meta")).shape == (2, 7)


def test_timm_models_serve_both_image_tasks() -> None:
    for task in ("classification", "multilabel"):
        offered = {model.id for model in load_catalogue().models_of(task)}
        assert offered >= set(timm_models.list_names())


def test_weights_have_the_source_of_their_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look up weights with a tag and without one. Without a tag, timm's name has no dot."""
    monkeypatch.setattr(
        timm_models, "list_tags", lambda: {"resnet18": ("a1_in1k", "tv_in1k"), "efficientnet_lite0": ("",)}
    )
    asked: list[str] = []
    get = timm.get_pretrained_cfg

    def get_and_record(name: str) -> object:
        asked.append(name)
        return get(name)

    monkeypatch.setattr(timm, "get_pretrained_cfg", get_and_record)
    found = timm_models.list_weights()
    assert asked == ["resnet18.a1_in1k", "resnet18.tv_in1k", "efficientnet_lite0"]
    assert list(found) == ["resnet18.a1_in1k", "resnet18.tv_in1k", "efficientnet_lite0."]
    assert [weights.repository for weights in found.values()][:2] == ["timm/resnet18.a1_in1k", "timm/resnet18.tv_in1k"]


def test_weights_sources_have_the_facts_that_timm_states(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = {
        "a.x": PretrainedCfg(hf_hub_id="timm/a@v2", license="mit", crop_pct=1.2),
        "b": PretrainedCfg(url="https://example.org/b.pth", license="unknown", crop_pct=0.875),
    }
    monkeypatch.setattr(timm_models, "list_tags", lambda: {"a": ("x",), "b": ("",), "c": ("",)})
    monkeypatch.setattr(timm, "get_pretrained_cfg", configs.get)
    assert timm_models.list_weights() == {
        "a.x": Weights(repository="timm/a", revision="v2", license="mit", crop=1.0),
        "b.": Weights(url="https://example.org/b.pth", crop=0.875),
    }


def test_tags_begin_with_that_of_the_default_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["efficientnet_b0", "botnet50ts_256", "test_vit"]
    monkeypatch.setattr(timm, "list_models", lambda: names)
    tags = timm_models.list_tags()
    assert list(tags) == ["efficientnet_b0", "test_vit"]  # timm has no weights of the other
    for name, (default, *others) in tags.items():
        assert default == timm.get_pretrained_cfg(name).tag
        assert {f"{name}.{tag}" for tag in (default, *others)} == set(timm.list_pretrained(name))
        assert default not in others


def test_any_timm_model_loads_by_name(tmp_path: Path) -> None:
    plain = timm.create_model("test_resnet", num_classes=4, in_chans=3)
    save_file(plain.state_dict(), tmp_path / "weights.safetensors")
    job = Job.from_fields(model="timm:test_resnet", weights_file=str(tmp_path / "weights.safetensors"))
    built = TASK.build_model(job, 4, 3).eval()
    inputs = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(built(inputs), plain.eval()(inputs))
    assert TASK.get_image_size(job) == plain.default_cfg["input_size"][1]
    assert TASK.get_normalization(job, 3) == (plain.default_cfg["mean"], plain.default_cfg["std"])
    other = TASK.build_model(job, 9, 1)  # has a new head, and a first layer for one channel
    assert other(inputs[:, :1]).shape == (2, 9)


def save_weights(job: Job) -> torch.nn.Module:
    """Save random weights for the job's model in the hub's cache, in timm's format. Return the model that has them."""
    model = timm.create_model(job.model.name.removeprefix("timm:")).eval()
    known = weights_of(job, load_catalogue())
    assert known is not None
    cached_path(known).parent.mkdir(parents=True)
    save_file(model.state_dict(), cached_path(known))
    return model


def test_timm_weights_come_from_the_hub_cache() -> None:
    job = Job.from_fields(model="timm:test_resnet", pretrained=True)
    plain = save_weights(job)
    inputs = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(TASK.build_model(job, 1000, 3).eval()(inputs), plain(inputs))
    other = TASK.build_model(job, 2, 1).eval()
    gray = inputs[:, :1]
    features = plain.forward_features(gray.expand(2, 3, 64, 64))
    torch.testing.assert_close(other.forward_features(gray), features, rtol=1e-4, atol=1e-4)


def test_position_embeddings_are_resampled() -> None:
    job = Job.from_fields(model="timm:test_vit", pretrained=True, image_size=96)
    plain = save_weights(job)
    expected = timm.create_model(
        "test_vit", pretrained=True, img_size=96, pretrained_cfg_overlay={"state_dict": plain.state_dict()}
    )
    inputs, level = torch.rand(2, 3, 96, 96), logging.getLogger("timm").level
    torch.testing.assert_close(TASK.build_model(job, 1000, 3).eval()(inputs), expected.eval()(inputs))
    assert logging.getLogger("timm").level == level != logging.ERROR
    unknown = Job.from_fields(model="timm:no_such_net")
    assert (TASK.get_image_size(unknown), TASK.get_normalization(unknown, 3)) == (224, IMAGENET)


def test_weights_tag_is_respected() -> None:
    known = load_catalogue()
    default, other = (
        weights_of(Job.from_fields(model=f"timm:{name}"), known)
        for name in ("vit_base_patch16_224", "vit_base_patch16_224.dino")
    )
    assert default is not None
    assert other is not None
    assert (default.repository, default.license) == (
        "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k",
        "apache-2.0",
    )
    assert other.repository == "timm/vit_base_patch16_224.dino"


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    save_file(timm.create_model("test_efficientnet").state_dict(), tmp_path / "other.safetensors")
    with pytest.raises(TaskError, match="does not fit the model") as error:
        TASK.build_model(
            Job.from_fields(model="timm:test_resnet", weights_file=str(tmp_path / "other.safetensors")), 1000, 3
        )
    assert error.value.field == "weights_file"


def test_fixed_size_model_takes_the_jobs_size() -> None:
    model = TASK.build_model(Job.from_fields(model="timm:test_vit", image_size=64), 3, 3)
    assert model(torch.rand(1, 3, 64, 64)).shape == (1, 3)


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"model": "timm:convnextv2_ato"}, "model", "Did you mean “convnextv2_atto”"),
        ({"model": "timm:test_vit", "image_size": 65}, "image_size", "Set 64, or leave it empty"),
        ({"model": "timm:test_resnet", "pretrained": True}, "pretrained", "are not on this machine: "),
        ({"model": "timm:botnet50ts_256", "pretrained": True}, "pretrained", "no pretrained weights"),
    ],
)
def test_unbuildable_model_is_a_field_problem(fields: dict[str, object], field: str, message: str) -> None:
    with pytest.raises(TaskError) as error:
        TASK.build_model(Job.from_fields(**fields), 3, 3)  # type: ignore[arg-type]
    assert error.value.field == field
    assert message in str(error.value)


def test_unlisted_timm_model_is_accepted(tmp_path: Path) -> None:
    def fields_with_problems(**fields: object) -> list[str]:
        job = Job.from_fields(dataset=str(tmp_path), **fields)  # type: ignore[arg-type]
        return [problem.field for problem in problems(job, load_catalogue())]

    assert fields_with_problems(model="timm:test_resnet") == []
    assert fields_with_problems(model="timm:test_resnet", pretrained=True) == ["pretrained"]
    assert fields_with_problems(model="timm:test_resnet", task="segmentation") == ["model"]
