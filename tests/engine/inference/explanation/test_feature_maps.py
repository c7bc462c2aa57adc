"""Choice of the layer that is explained, and the image positions of the cells in its feature maps."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from engine.contract.inference.explanation import Method
from engine.contract.job import Job
from engine.inference.explanation.explainer import Explainer, combine_maps, eigen_cam, grad_cam, local_grad_cam
from engine.inference.explanation.feature_maps import (
    NoFeatureMap,
    choose_layer,
    collect_maps,
    convert_to_map,
    record_outputs,
)
from engine.tasks.registry import TASKS
from tests.support.plain_models import make_trained_model

SIDE = 64


def build_classifier(model: str, side: int = SIDE) -> nn.Module:
    """Return an untrained classifier for 5 classes and square images of `side` pixels.

    Heads whose weights are zero are randomized, because gradients would vanish.
    """
    task = TASKS["classification"]
    module = task.build_model(
        Job.from_fields(task="classification", model=model, image_size=side, pretrained=False), 5, 3
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in module.parameters():
            if parameter.ndim >= 2 and not parameter.any():
                nn.init.normal_(parameter, std=0.1)
    return module.eval().requires_grad_(False)


@pytest.mark.parametrize(
    ("model", "side", "layer"),
    [
        ("resnet18", 128, "layer4"),
        ("resnet18", 64, "layer3"),  # the last map has only 2 x 2 cells
        ("timm:vit_tiny_patch16_224", 64, "blocks.11.norm1"),  # later layers use only the class token
        ("timm:mixer_s16_224", 64, "norm"),
        ("swin_t", 128, "permute"),
    ],
)
def test_last_relevant_feature_map_is_found(model: str, side: int, layer: str) -> None:
    module = build_classifier(model, side)
    found = choose_layer(module, lambda outputs: outputs[0, 1], torch.randn(1, 3, side, side), is_dense=False)
    assert found.grid == (4, 4)
    assert found.name == layer


def test_largest_map_is_chosen_if_all_are_small() -> None:
    module = nn.Sequential(nn.Conv2d(3, 2, 2, 2), nn.Conv2d(2, 2, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    found = choose_layer(module, lambda outputs: outputs[0, 1], torch.randn(1, 3, 6, 6), is_dense=False)
    assert (found.name, found.grid) == ("0", (3, 3))


@pytest.mark.parametrize(
    ("model", "layer", "row", "column"),
    [
        ("timm:vit_tiny_patch16_224", "blocks.0.norm1", 0, 3),
        pytest.param("swin_t", "features.0", 1, 2, marks=pytest.mark.long),
        ("resnet18", "conv1", 2, 1),
    ],
)
def test_map_cells_match_image_positions(model: str, layer: str, row: int, column: int) -> None:
    """Change an area of the image, and check that the corresponding cell of the feature map changes most."""
    module = build_classifier(model)
    image = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    changed = image.clone()
    side = SIDE // 4
    changed[..., row * side : (row + 1) * side, column * side : (column + 1) * side] += 2
    maps: list[Tensor] = []
    for given in (image, changed):
        with record_outputs(module, [layer]) as outputs, torch.no_grad():
            module(given)
        maps += collect_maps(outputs[layer], SIDE)
    difference = (maps[0] - maps[1]).abs().sum(0)
    quarters = nn.functional.adaptive_avg_pool2d(difference[None], 4)[0]
    assert divmod(int(quarters.argmax()), 4) == (row, column)


def test_shapes_are_recognized_as_maps() -> None:
    assert convert_to_map(torch.zeros(1, 8, 7, 7), 224).shape == (8, 7, 7)  # type: ignore[union-attr]
    assert convert_to_map(torch.zeros(1, 7, 7, 8), 224).shape == (8, 7, 7)  # type: ignore[union-attr]
    assert convert_to_map(torch.zeros(1, 197, 8), 224).shape == (8, 14, 14)  # type: ignore[union-attr]
    assert convert_to_map(torch.zeros(1, 201, 8), 224).shape == (8, 14, 14)  # type: ignore[union-attr]
    assert (
        convert_to_map(torch.zeros(1, 2, 8, 8), 8).shape
        == convert_to_map(torch.zeros(1, 8, 8, 2), 8).shape
        == (2, 8, 8)
    )  # type: ignore[union-attr]
    for shape in ((1, 8, 1, 1), (1, 1000), (4, 49, 8), (1, 120, 8), (1, 8, 7, 5)):
        assert convert_to_map(torch.zeros(shape), 224) is None
    tokens = torch.arange(10.0).reshape(1, 5, 2)  # a class token, and 2 x 2 cells
    assert convert_to_map(tokens, 8).tolist() == [[[2, 4], [6, 8]], [[3, 5], [7, 9]]]  # type: ignore[union-attr]
    pyramid = {
        "top": torch.zeros(1, 8, 4, 4),
        "more": [torch.zeros(1, 4, 8, 8), None, torch.zeros(1, 8, 16, 16).long()],
    }
    assert [level.shape for level in collect_maps(pyramid, 64)] == [(4, 8, 8), (8, 4, 4)]


def test_outputs_are_recorded_in_the_order_of_the_last_calls() -> None:
    first, second = nn.Identity(), nn.Identity()
    module = nn.ModuleDict({"first": first, "second": second})
    with record_outputs(module, ["first", "second"]) as outputs:
        for value, each in ((1, first), (2, second), (3, first)):
            each(value)
    first(4)
    assert list(outputs.items()) == [("second", 2), ("first", 3)]


def test_model_without_a_map_is_reported() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 4))
    with pytest.raises(NoFeatureMap, match="no layer with a map"):
        choose_layer(flat, lambda outputs: outputs[0, 0], torch.zeros(1, 3, 8, 8), is_dense=False)


class Dense(nn.Module):
    """Network that returns two scores for each pixel.

    They are the sum of fine scores from a decoder and of coarse scores, both computed from the features of the
    submodule whose name is `body`.
    """

    def __init__(self, body: str) -> None:
        super().__init__()
        self.add_module(body, nn.Sequential(nn.Conv2d(3, 8, 2, 2), nn.Conv2d(8, 16, 4, 4)))
        self.scores = nn.Conv2d(16, 2, 2, 2)
        self.decoder = nn.Sequential(nn.Upsample(scale_factor=8), nn.Conv2d(16, 8, 1))
        self.head = nn.Conv2d(8, 2, 1)
        self._body = body

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.get_submodule(self._body)(inputs)
        coarse: Tensor = nn.functional.interpolate(self.scores(features), inputs.shape[-2:])
        return coarse + self.head(self.decoder(features))


@pytest.mark.parametrize("body", ["encoder", "backbone", "layers"])
def test_deepest_features_explain_dense_outputs(body: str) -> None:
    found = choose_layer(Dense(body), lambda outputs: outputs[0, 1].sum(), torch.randn(1, 3, SIDE, SIDE), is_dense=True)
    assert found == (body, (8, 8))


def test_heat_maps_are_those_of_their_method() -> None:
    torch.manual_seed(0)
    body, head = nn.Conv2d(3, 4, 2, 2), nn.Sequential(nn.Flatten(), nn.Linear(4 * 8 * 8, 3))
    model, image = make_trained_model("classification", nn.Sequential(body, head)), torch.rand(1, 3, 16, 16)
    features = body(image).detach().requires_grad_()
    expected = {"eigen-cam": [eigen_cam(features[0].detach())] * 2}
    gradients = [torch.autograd.grad(head(features)[0, number], features)[0] for number in (2, 0)]
    expected["grad-cam"] = [grad_cam(features[0].detach(), gradient[0]) for gradient in gradients]
    calls: list[object] = []
    body.register_forward_hook(lambda *_: calls.append(1))
    for method in get_args(Method):
        explainer = Explainer(model, method)
        explainer.explain(image + 1, [1])
        calls.clear()
        found = explainer.explain(image, [2, 0])
        assert len(calls) == 1, "the layer is chosen only once"
        for each, heat in zip(found, expected[method], strict=False):
            torch.testing.assert_close(each.heat, combine_maps([heat], 16))
        assert [each.target.class_name for each in found] == ([""] if method == "eigen-cam" else ["c", "a"])


def test_detectors_are_explained_at_their_pyramid() -> None:
    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pyramid = "levels"
            self.levels = nn.Identity()

        def detect(self, inputs: Tensor) -> list[dict[str, Tensor]]:
            self.levels([nn.functional.avg_pool2d(inputs, side) for side in (8, 2, 4)])  # the first one is too small
            return [{"boxes": torch.zeros(1, 4), "scores": inputs.mean()[None], "labels": torch.tensor([1])}]

    image = torch.rand(1, 3, 16, 16)
    explainer = Explainer(make_trained_model("detection", Detector()), "eigen-cam")
    (found,) = explainer.explain(image, [])
    assert explainer.layer == ("levels", (8, 8))
    expected = combine_maps([eigen_cam(nn.functional.avg_pool2d(image[0], 4))], 16)
    torch.testing.assert_close(found.heat, expected)


def test_cams_match_their_definitions() -> None:
    activations = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[0.0, 3.0], [1.0, 0.0]]])
    gradients = torch.tensor([[[4.0, 0.0], [0.0, 0.0]], [[0.0, -8.0], [0.0, 0.0]]])
    assert torch.equal(grad_cam(activations, gradients), torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    spot = torch.zeros(6, 4, 4)
    spot[:, 1, 2] = torch.arange(1.0, 7.0)
    heat = eigen_cam(spot)
    assert divmod(int(heat.argmax()), 4) == (1, 2)
    assert heat.count_nonzero() == 1
    for values in torch.rand((6, 5, 4, 4), generator=torch.Generator().manual_seed(0)):
        assert torch.corrcoef(torch.stack([eigen_cam(values).flatten(), values.flatten(1).norm(dim=0)]))[0, 1] > 0
    for same in (-spot, spot + 5):
        torch.testing.assert_close(eigen_cam(same), heat)
    assert torch.equal(local_grad_cam(activations, gradients), torch.tensor([[4.0, 0.0], [0.0, 0.0]]))
    fine = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).repeat_interleave(2, 0).repeat_interleave(2, 1)
    torch.testing.assert_close(combine_maps([fine, torch.full((2, 2), 5.0)], 4), (fine + 5) / 8)
    assert not combine_maps([torch.zeros(2, 2)], 4).any()
