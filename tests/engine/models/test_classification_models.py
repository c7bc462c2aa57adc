"""Classification models: heads, first layers, weights and freezing."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from engine.contract.job import Job
from engine.models import classification_models, timm_models, torchvision_models, weights
from engine.models.base import TaskError
from engine.models.meta_device import build_on_meta
from engine.models.mnist_cnn import MnistCnn
from engine.models.model_surgery import find_first_conv, find_head, match_channels
from engine.models.weights import InitialWeights, resize_positions
from engine.tasks.registry import TASKS
from tests.support import consent
from tests.support.cases import mark_long_cases

TASK = TASKS["classification"]
ONE_OF_EACH = [
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "maxvit_t", "mnasnet0_5",
    "mobilenet_v2", "mobilenet_v3_small", "regnet_y_400mf", "resnet18", "shufflenet_v2_x0_5", "squeezenet1_0", "swin_t",
    "swin_v2_t", "vgg11_bn", "vit_b_32",
]  # fmt: skip
BEGINNING = ("resnet18", "mnasnet0_5", "timm:tf_efficientnet_lite0", "timm:vit_tiny_patch16_224")
LARGEST = 200_000_000
"""Maximum number of parameters of models that are trained for a step."""
RESNET18_FILE = "resnet18-f37072fd.pth"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache for torchvision's weights and disable downloads. Return the cache folder."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    folder = tmp_path / "torch/hub/checkpoints"
    folder.mkdir(parents=True)
    return folder


def _others() -> list[str]:
    return [name for name in (*torchvision_models.list_names(), *timm_models.list_names()) if name not in BEGINNING]


def outputs_of(model: nn.Module, channels: int, size: int) -> Tensor:
    outputs = model(torch.empty(2, channels, size, size, device="meta"))
    assert isinstance(outputs, Tensor)
    return outputs


@pytest.mark.parametrize("name", mark_long_cases(classification_models.list_names(), everyday=ONE_OF_EACH))
def test_models_train_on_gray_images(name: str) -> None:
    size = max(8, classification_models.get_min_image_size(name))
    model = build_on_meta(lambda: classification_models.build(Job.from_fields(model=name), 7, 1, size))
    head, first = find_head(model, 7), find_first_conv(model)
    assert head is not None
    assert first is not None
    assert model.get_submodule(first).in_channels == 1
    assert model.training
    assert model.get_submodule(head).weight.shape[0] == 7
    if sum(1 for _ in model.modules()) < 250:  # the largest models take seconds even on the meta device
        assert outputs_of(model, 1, size).shape == (2, 7)


def test_googlenet_starts_with_the_weights_of_its_paper() -> None:
    model = torchvision_models.construct("googlenet", torchvision_models.create_arguments("googlenet", 2, 32))
    assert model.get_parameter("conv1.conv.weight").std().item() == pytest.approx(0.01, rel=0.1)


def test_minimum_sizes_are_those_of_the_architecture() -> None:
    smallest = {"mnist_cnn": 12, "alexnet": 63, "vit_l_16": 16, "swin_v2_t": 32, "timm:vit_small_patch16_224": 16}
    assert {name: classification_models.get_min_image_size(name) for name in smallest} == smallest


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_checkpoint_loads_in_torchvision(name: str) -> None:
    size = classification_models.get_default_image_size(name)
    built = build_on_meta(lambda: classification_models.build(Job.from_fields(model=name), 7, 3, size))
    plain = build_on_meta(
        lambda: torchvision_models.construct(name, torchvision_models.create_arguments(name, 7, size))
    )
    shapes = [{key: tensor.shape for key, tensor in model.state_dict().items()} for model in (built, plain)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", mark_long_cases((*BEGINNING, *_others()), everyday=BEGINNING))
def test_two_class_training_starts_near_chance(name: str) -> None:
    """Check that the first loss is close to ln 2. With the default heads of some models it would be 2 to 5."""
    default = classification_models.get_default_image_size(name)
    has_fixed_size = timm_models.is_timm(name) or name in torchvision_models.PATCH_SIZES
    size = default if has_fixed_size else max(96, classification_models.get_min_image_size(name))
    if (
        sum(
            p.numel()
            for p in build_on_meta(
                lambda: classification_models.build(Job.from_fields(model=name), 2, 3, size)
            ).parameters()
        )
        > LARGEST
    ):
        pytest.skip("its family is tested by a smaller one")
    model = classification_models.build(Job.from_fields(model=name), 2, 3, size)
    inputs = torch.randn(8, 3, size, size, generator=torch.Generator().manual_seed(0))
    loss = nn.functional.cross_entropy(model(inputs), torch.tensor([0, 1] * 4))
    assert loss.item() == pytest.approx(math.log(2), abs=0.45)
    loss.backward()
    head = find_head(model, 2)
    assert head is not None
    assert model.get_submodule(head).weight.grad.isfinite().all()  # type: ignore[union-attr]


@pytest.mark.long
def test_small_head_follows_its_family() -> None:
    job = Job.from_fields(model="vgg11", seed=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.training.seed)
        plain = torchvision_models.construct("vgg11", torchvision_models.create_arguments("vgg11", 2, 32))
    model_state = classification_models.build(job, 2, 3, 32).state_dict()
    assert all(torch.equal(tensor, model_state[name]) for name, tensor in plain.state_dict().items())


def test_fresh_weights_depend_on_the_seed() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = TASK.build_model(Job.from_fields(model="resnet18", seed=1), 5, 1).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    again = TASK.build_model(Job.from_fields(model="resnet18", seed=1), 5, 1).state_dict()
    other = TASK.build_model(Job.from_fields(model="resnet18", seed=2), 5, 1).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [12, 27, 28, 64])
def test_mnist_cnn_accepts_any_size(size: int, channels: int) -> None:
    model = TASK.build_model(Job.from_fields(model="mnist_cnn", image_size=size), 4, channels)
    assert model(torch.rand(3, channels, size, size)).shape == (3, 4)


def test_mnist_cnn_is_deterministic() -> None:
    kinds = {type(module) for module in MnistCnn().modules()}
    assert kinds == {MnistCnn, nn.Conv2d, nn.Linear, nn.AdaptiveMaxPool2d}
    images, model = torch.rand(2, 1, 28, 28), MnistCnn()
    features = nn.functional.max_pool2d(model.conv2(model.conv1(images).relu()).relu(), 2)
    torch.testing.assert_close(model(images), model.fc2(model.fc1(features.flatten(1)).relu()))


@pytest.mark.parametrize(
    ("job", "field", "message"),
    [
        (Job.from_fields(model="resnet"), "model", "There is no model “resnet”"),
        (Job.from_fields(model="inception_v3", image_size=64), "image_size", "at least 75 px"),
        (Job.from_fields(model="vit_b_16", image_size=100), "image_size", "multiple of 16"),
        (Job.from_fields(model="mnist_cnn", pretrained=True), "pretrained", "no pretrained weights"),
        (Job.from_fields(model="mnist_cnn", image_size=8), "image_size", "at least 12"),
    ],
)
def test_unbuildable_model_names_field_and_remedy(job: Job, field: str, message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        TASK.build_model(job, 5, 3)
    assert caught.value.field == field
    assert caught.value.remedy


# Weights


@pytest.fixture
def cached(empty_cache: Path) -> dict[str, Tensor]:
    """Save random weights of resnet18 in torchvision's cache, as a download would, and return them."""
    state = torchvision_models.construct("resnet18", {"num_classes": 1000}).state_dict()
    torch.save(state, empty_cache / RESNET18_FILE)
    return state


def test_pretrained_weights_get_a_new_head(cached: dict[str, Tensor]) -> None:
    state = TASK.build_model(Job.from_fields(model="resnet18", pretrained=True), 5, 3).state_dict()
    same = {
        name for name in state if state[name].shape == cached[name].shape and torch.equal(state[name], cached[name])
    }
    assert state.keys() - same == {"fc.weight", "fc.bias"}


def test_gray_image_equals_its_color_copy(cached: dict[str, Tensor]) -> None:
    color = TASK.build_model(Job.from_fields(model="resnet18", pretrained=True), 5, 3).eval()
    gray = TASK.build_model(Job.from_fields(model="resnet18", pretrained=True), 5, 1).eval()
    gray.load_state_dict({"fc.weight": color.fc.weight, "fc.bias": color.fc.bias}, strict=False)
    image = torch.rand(2, 1, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(gray(image), color(image.expand(2, 3, 64, 64)), rtol=1e-4, atol=1e-4)


def test_missing_weights_offer_alternatives(empty_cache: Path) -> None:
    with pytest.raises(TaskError) as caught:
        TASK.build_model(Job.from_fields(model="resnet18", pretrained=True), 5, 3)
    assert caught.value.field == "pretrained"
    assert str(empty_cache / RESNET18_FILE) in caught.value.message
    assert "rain from scratch" in caught.value.remedy
    assert "weights file" in caught.value.remedy


def test_unusable_cache_is_reported(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty_cache / RESNET18_FILE).write_bytes(b"half a download")
    with pytest.raises(TaskError, match="damaged") as caught:
        TASK.build_model(Job.from_fields(model="resnet18", pretrained=True), 5, 3)
    assert "Remove that file" in caught.value.remedy
    monkeypatch.setattr(weights, "_read_state", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(TaskError, match=r"can't be read \(.*Permission denied") as caught:
        TASK.build_model(Job.from_fields(model="resnet18", pretrained=True), 5, 3)
    assert "Check the file's permissions" in caught.value.remedy


@pytest.mark.parametrize("wrap", [lambda state: state, lambda state: {"model": state, "epoch": 3}])
def test_weights_file_loads_with_a_matching_head(tmp_path: Path, wrap: object) -> None:
    source = TASK.build_model(Job.from_fields(model="mnist_cnn", seed=9), 5, 1).state_dict()
    torch.save(wrap(source), tmp_path / "best.pt")  # type: ignore[operator]
    job = Job.from_fields(model="mnist_cnn", weights_file=str(tmp_path / "best.pt"))
    same = TASK.build_model(job, 5, 1).state_dict()
    assert all(torch.equal(same[name], source[name]) for name in source)
    other = TASK.build_model(job, 6, 3).state_dict()
    assert other["fc2.weight"].shape == (6, 128)
    torch.testing.assert_close(other["conv1.weight"].sum(1, keepdim=True), source["conv1.weight"])
    assert torch.equal(other["fc1.weight"], source["fc1.weight"])


def test_weights_file_runs_no_code(tmp_path: Path) -> None:
    torch.save(MnistCnn(), tmp_path / "whole.pt")
    with pytest.raises(TaskError, match="can't be read as weights") as caught:
        TASK.build_model(Job.from_fields(model="mnist_cnn", weights_file=str(tmp_path / "whole.pt")), 5, 1)
    assert caught.value.field == "weights_file"


@pytest.mark.parametrize("name", ["cut.pt", "cut.safetensors"])
def test_truncated_weights_are_damaged(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    save = save_file if file.suffix == ".safetensors" else torch.save
    save({"a": torch.zeros(10_000)}, file)
    file.write_bytes(file.read_bytes()[:20_000])
    with pytest.raises(TaskError, match=f"{file} is damaged or incomplete") as caught:
        TASK.build_model(Job.from_fields(model="mnist_cnn", weights_file=str(file)), 5, 1)
    assert caught.value.field == "weights_file"


@pytest.mark.parametrize(
    ("content", "message"),
    [({"a": torch.zeros(1)}, "conv1.weight, conv1.bias"), ([1, 2], "contains no weights"), ({}, "contains no weights")],
)
def test_foreign_weights_are_refused(tmp_path: Path, content: object, message: str) -> None:
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(TaskError, match=message) as caught:
        TASK.build_model(Job.from_fields(model="mnist_cnn", weights_file=str(tmp_path / "other.pt")), 5, 1)
    assert caught.value.field == "weights_file"


def test_missing_weights_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="There is no file"):
        TASK.build_model(Job.from_fields(model="mnist_cnn", weights_file=str(tmp_path / "gone.pt")), 5, 1)


def test_vit_positions_follow_the_image_size(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"encoder.pos_embedding": torch.rand(1, 2 * 2 + 1, 768)}
    assert resize_positions("vit_b_32", state, 64) is state
    for size, side in ((32, 1), (96, 3)):
        resized = resize_positions("vit_b_32", state, size)["encoder.pos_embedding"]
        assert resized.shape == (1, side * side + 1, 768)
    assert resize_positions("resnet18", state, 96) is state
    loaded: list[InitialWeights] = []
    monkeypatch.setattr(weights, "read_initial", lambda _job, _title: InitialWeights(state, "weights_file", "a.pt"))
    monkeypatch.setattr(weights, "load", lambda _model, initial, **_options: loaded.append(initial))
    build_on_meta(lambda: classification_models.build(Job.from_fields(model="vit_b_32"), 5, 3, 96))
    assert loaded[0].state["encoder.pos_embedding"].shape == (1, 10, 768)


@pytest.mark.parametrize(("have", "want"), [(3, 1), (1, 3), (3, 3), (3, 5)])
def test_adapted_first_layer_gives_same_output_for_gray(have: int, want: int) -> None:
    weight = torch.rand(4, have, 3, 3)
    adapted = match_channels(weight, want)
    assert adapted.shape == (4, want, 3, 3)
    torch.testing.assert_close(adapted.sum(1), weight.sum(1))
    if want == 5:
        torch.testing.assert_close(adapted[:, 2:], torch.stack([weight[:, 2], weight[:, 0] / 2, weight[:, 1] / 2], 1))


# Freezing


def test_find_head_takes_the_last_layer_of_that_size() -> None:
    model = nn.Sequential(nn.Conv2d(3, 5, 1), nn.Flatten(), nn.Linear(20, 5), nn.Linear(5, 7), nn.Conv2d(7, 9, 1))
    assert [find_head(model, classes) for classes in (5, 7, 9, 3)] == ["2", "3", "4", None]


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "squeezenet1_1", "vit_b_32", "mnist_cnn"])
def test_freezing_trains_the_head_only(name: str) -> None:
    model = build_on_meta(lambda: classification_models.build(Job.from_fields(model=name, freeze_epochs=100), 5, 3, 64))
    head = find_head(model, 5)
    free = {key for key, parameter in model.named_parameters() if parameter.requires_grad}
    assert free == {f"{head}.weight", f"{head}.bias"}


def test_frozen_statistics_stay_frozen() -> None:
    model = TASK.build_model(Job.from_fields(model="resnet18", freeze_epochs=100), 5, 3)
    for each in (model, copy.deepcopy(model), torch.fx.symbolic_trace(model)):
        each.eval()
        each.train()
        before = {name: tensor.clone() for name, tensor in each.state_dict().items() if "running" in name}
        each(torch.rand(4, 3, 32, 32)).sum().backward()
        after = each.state_dict()
        assert before
        assert all(torch.equal(before[name], after[name]) for name in before)


# Model files of the user


def write_model_job(path: Path, text: str, **given: object) -> Job:
    """Write a model file with the source `text`, and return a job that uses it.

    Footplate is permitted to execute the file. `given` are further fields of the job.
    """
    path.write_text(text)
    return Job.from_fields(model=str(path), model_file_sha256=consent.permit_model_file(path), image_size=16, **given)  # type: ignore[arg-type]


GOOD = """
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d({channels}, 4, 3), nn.BatchNorm2d(4))
        self.out = nn.Linear(4, classes)

    def forward(self, x):
        return self.out(self.conv(x).mean((2, 3)))

def build_model(num_classes):
    return Net(num_classes)
"""


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("model_channels", [1, 3])
def test_model_file_builds_for_any_channels(tmp_path: Path, channels: int, model_channels: int) -> None:
    model = TASK.build_model(write_model_job(tmp_path / "net.py", GOOD.format(channels=model_channels)), 6, channels)
    assert model.training
    assert model.conv[1].num_batches_tracked == 0  # type: ignore[index,union-attr]
    assert model(torch.rand(2, channels, 16, 16)).shape == (2, 6)


def test_model_file_supports_freezing_and_weights(tmp_path: Path) -> None:
    job = write_model_job(tmp_path / "net.py", GOOD.format(channels=3), freeze_epochs=100)
    model = TASK.build_model(job, 6, 3)
    assert [name for name, each in model.named_parameters() if each.requires_grad] == ["out.weight", "out.bias"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_that_name\n", r"net.py, line 1, fails when it is imported: ModuleNotFoundError"),
        ("\n\nraise ValueError('no')\n", r"net.py, line 3, fails when it is imported: ValueError: no"),
        ("import sys\nsys.exit(1)\n", r"net.py, line 2, fails when it is imported: SystemExit"),
        ("def build_model(:\n", r"net.py, line 1: invalid syntax"),
        ("x = 1\n", r"has no function build_model"),
        ("build_model = 3\n", r"has no function build_model"),
        ("def build_model():\n    pass\n", r"fails in build_model: TypeError"),
        ("def build_model(n):\n    return 1 / 0\n", r"net.py, line 2, fails in build_model: ZeroDivisionError"),
        (
            "def build_model(n):\n    return f(n)\n\ndef f(n):\n    return 1 / 0\n",
            r"net.py, line 5, fails in build_model",
        ),
        ("def build_model(n):\n    pass\n", r"returned nothing, not a model"),
        ("def build_model(n):\n    return [n]\n", r"returned a list, not a model"),
        (
            GOOD.format(channels=3).replace("4, classes", "4, 9"),
            r"returns a tensor of \[2, 9\]; expected a tensor of \[2, 6\]",
        ),
        (GOOD.format(channels=5), r"fails on images of 16 px with 3 channels: RuntimeError"),
        (GOOD.format(channels=3).replace("return self.out", "return x, self.out"), r"returns a tuple"),
    ],
)
def test_model_file_problems_are_reported(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        TASK.build_model(write_model_job(tmp_path / "net.py", text), 6, 3)
    assert caught.value.field == "model"
    assert caught.value.remedy


@pytest.mark.parametrize("sha256", ["", "0" * 64])
def test_model_file_needs_consent_to_run(tmp_path: Path, sha256: str) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "net.py").write_text(f"open({str(mark)!r}, 'w')\n")
    with pytest.raises(TaskError, match="you have not allowed to run"):
        TASK.build_model(Job.from_fields(model=str(tmp_path / "net.py"), model_file_sha256=sha256), 6, 3)
    consent.permit_model_file(tmp_path / "net.py")  # it has changed since the job was created
    with pytest.raises(TaskError, match="you have not allowed to run"):
        TASK.build_model(Job.from_fields(model=str(tmp_path / "net.py"), model_file_sha256=sha256), 6, 3)
    assert not mark.exists()
    with pytest.raises(TaskError, match=r"gone\.py can't be read \(No such file or directory\)"):
        TASK.build_model(Job.from_fields(model=str(tmp_path / "gone.py"), model_file_sha256=sha256), 6, 3)


@pytest.mark.parametrize(("dropout", "depth"), [(0.375, 0.25), (0.0, 0.0)])
@pytest.mark.parametrize("model", ["efficientnet_b0", "swin_t", "timm:tf_efficientnet_lite0"])
def test_dropout_follows_the_job(model: str, dropout: float, depth: float) -> None:
    job = Job.from_fields(model=model, dropout=dropout, stochastic_depth=depth)
    layers = list(build_on_meta(lambda: classification_models.build(job, 5, 3, 64)).modules())
    names = ["p" if isinstance(layer, nn.Dropout) else "drop_rate" for layer in layers]
    assert max(vars(layer).get(name, 0.0) for layer, name in zip(layers, names, strict=True)) == dropout
    rates = {
        vars(layer).get("p", vars(layer).get("drop_prob"))
        for layer in layers
        if type(layer).__name__ in ("StochasticDepth", "DropPath")
    }
    assert max(rates, default=0.0) == pytest.approx(depth, rel=0.1)
    assert min(rates, default=0.0) < 0.05, "it rises from block to block (Huang et al. 2016)"


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("resnet18", "dropout"),
        ("vit_b_16", "stochastic_depth"),
        ("mnist_cnn", "dropout"),
        ("timm:dla34", "stochastic_depth"),
        ("convnext_tiny", "dropout"),
    ],
)
def test_unsupported_dropout_is_reported(model: str, field: str) -> None:
    with pytest.raises(TaskError, match="has no") as raised:
        build_on_meta(lambda: classification_models.build(Job.from_fields(model=model, **{field: 0.2}), 5, 3, 64))  # type: ignore[arg-type]
    assert raised.value.field == field
