"""Generation of the catalogue. The file in the package must be up to date."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchvision import models as torchvision

from engine import catalogue
from engine.contract.catalogue import load_catalogue, suggest_name
from engine.models import encoders, timm_models, torchvision_models
from engine.strategies import STRATEGIES
from engine.tasks.registry import TASKS


def test_catalogue_file_is_complete() -> None:
    shipped = load_catalogue()
    assert [entry.id for entry in shipped.tasks] == list(TASKS)
    assert list(shipped.strategies) == [strategy.entry for strategy in STRATEGIES.values()]
    found = {task: {entry.id for entry in shipped.models if entry.task == task} for task in TASKS}
    assert found["classification"] == {
        "mnist_cnn", *torchvision.list_models(module=torchvision), *timm_models.list_names(),
    }  # fmt: skip
    assert {"unet", *torchvision.list_models(module=torchvision.segmentation)} < found["segmentation"]
    assert all(task.file or task.model in {entry.id for entry in shipped.models_of(task.id)} for task in shipped.tasks)
    assert {"resnet34", "mit_b0"} < set(shipped.encoders)
    assert shipped.encoder_weights == encoders.list_imagenet_weights()


@pytest.mark.parametrize(
    "name",
    [
        "mnist_cnn",
        "resnet18",
        "vit_b_32",
        "squeezenet1_1",
        "googlenet",
        "regnet_x_400mf",
        "unet",
        "fcn_resnet50",
        "timm:dla34",
        "maskrcnn",
        "hourglass_mtl",
        "linknet_mtl",
        "hed",
        "hed_encoder",
        "bdcn",
        "pointcnn_x2",
        "fasterrcnn_resnet50_fpn",
        "rtdetrv2_r18",
        "deimv2_pico",
        "mask2former_swin_t_semantic",
        "eomt_s",
    ],
)
def test_shipped_model_facts_are_current(name: str) -> None:
    shipped = load_catalogue().model(name)
    assert shipped is not None
    assert shipped == catalogue.describe(TASKS[shipped.task], name)


def test_model_facts_match_torchvision() -> None:
    weights = torchvision.ResNet50_Weights.DEFAULT
    entry = catalogue.describe(TASKS["classification"], "resnet50")
    assert (entry.title, entry.family, entry.image_size) == ("ResNet-50", "ResNet", 224)
    assert entry.parameters == weights.meta["num_params"]
    assert entry.weights is not None
    assert entry.weights.url == weights.url
    assert entry.weights.title == "resnet50-11ad3fa6.pth from download.pytorch.org"
    assert entry.weights.bytes == pytest.approx(102.5e6, rel=0.01)
    assert entry.batch_norm
    points = entry.possible_split_points
    assert (len(points), points[0], points[-1]) == (20, "conv1", "avgpool")
    titles = [torchvision_models.get_title_and_family(name)[0] for name in ("vgg11_bn", "swin_v2_t")]
    assert titles == ["VGG-11 BN", "Swin V2-T"]
    assert (entry.blocks, entry.tied) == (16, ())


def test_titles_are_unique() -> None:
    titles = [entry.title for entry in load_catalogue().models]
    assert len(set(titles)) == len(titles)
    assert not any("_" in title for title in titles)
    assert not any(entry.family == "Other" for entry in load_catalogue().models)


def test_unknown_names_are_answered_with_similar_or_available_ones() -> None:
    names = [f"{letter}{letter}{letter}" for letter in "abcdefghij"]
    assert suggest_name("jjjk", names) == "Did you mean “jjj”?"
    assert suggest_name("xyz", names) == "Available: aaa, bbb, ccc, ddd, eee, fff, ggg, hhh, …."
    assert suggest_name("xyz", names[:8]) == "Available: aaa, bbb, ccc, ddd, eee, fff, ggg, hhh."
    assert suggest_name("xyz", names[:2]) == "Available: aaa, bbb."


def test_check_reports_a_stale_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh = catalogue.Catalogue(tasks=(), models=(), strategies=())
    monkeypatch.setattr(catalogue, "generate", lambda: fresh)
    monkeypatch.setattr(catalogue, "CATALOGUE_FILE", tmp_path / "catalogue.json")
    assert catalogue.main(["--check"]) == 1
    assert catalogue.main(["--write"]) == 0
    assert catalogue.main(["--check"]) == 0
    (tmp_path / "catalogue.json").write_text("{}")
    assert catalogue.main(["--check"]) == 1
