"""Weights that are loaded into models which differ from those that they were saved from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.models import weights
from engine.models.base import TaskError
from engine.models.weights import InitialWeights


def make_model(classes: int, channels: int = 3) -> nn.Sequential:
    """Return a model whose head has two layers."""
    head = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, classes))
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), head)


def load(model: nn.Module, state: dict[str, torch.Tensor], channels: int = 3) -> set[str]:
    """Load `state` into the model. Return the names of the tensors that are now equal to those in `state`."""
    weights.load(model, InitialWeights(state, "weights_file", "a.pt"), head="3", channels=channels)
    return {name for name, tensor in model.state_dict().items() if name in state and torch.equal(tensor, state[name])}


@pytest.mark.parametrize("classes", [2, 5])
def test_head_is_loaded_as_a_whole_or_not_at_all(classes: int) -> None:
    state = {name: torch.rand(tensor.shape) for name, tensor in make_model(2).state_dict().items()}
    del state["1.num_batches_tracked"]  # as in early versions of torch
    loaded = load(make_model(classes), state)
    assert loaded == {name for name in state if classes == 2 or not name.startswith("3.")}


def test_first_layer_is_adapted_to_the_channels() -> None:
    state = make_model(2).state_dict()
    model = make_model(2, channels=1)
    load(model, state, channels=1)
    torch.testing.assert_close(model[0].weight, state["0.weight"].sum(1, keepdim=True))


def test_missing_and_misshapen_weights_are_named() -> None:
    state = make_model(2).state_dict() | {"0.bias": torch.zeros(7)}
    for name in ("1.weight", "1.bias", "1.running_mean"):
        del state[name]
    with pytest.raises(
        TaskError, match=r"a\.pt does not fit the model: 0\.bias, 1\.weight, 1\.bias and 1 more "
    ) as error:
        load(make_model(2), state)
    assert error.value.field == "weights_file"
