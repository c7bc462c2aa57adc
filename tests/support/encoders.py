"""Classification models that provide pretrained weights for encoders."""

from __future__ import annotations

import timm
import torchvision
from torch import Tensor, nn

from engine.contract.weights import TIMM_ENCODER


def make_classifier(encoder: str) -> nn.Module:
    """Create the classification model that contains `encoder`, with random weights."""
    if encoder.startswith(TIMM_ENCODER):
        model: nn.Module = timm.create_model(encoder.removeprefix(TIMM_ENCODER))
        return model
    return torchvision.models.get_model(encoder, weights=None)


def compute_deepest_features(classifier: nn.Module, inputs: Tensor) -> Tensor:
    """Compute the features after the last stage of `classifier` (a timm model or a torchvision ResNet)."""
    if hasattr(classifier, "forward_intermediates"):
        features: Tensor = classifier.forward_intermediates(inputs, intermediates_only=True)[-1]
        return features
    return nn.Sequential(*list(classifier.children())[:-2])(inputs)
