"""A frozen backbone that is to be trained later in the run."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn


def hold(model: nn.Module) -> frozenset[str]:
    """The names of the frozen parameters of `model`, which take gradients from now on.

    So every strategy lays them out, joins and cuts as it will have to when they are trained; until then the updater lets
    their gradients fall (`OptimizerStep.release`), and with them the optimizer does nothing to them: no decay, no momentum.
    """
    held = frozenset(name for name, parameter in model.named_parameters() if not parameter.requires_grad)
    for parameter in model.parameters():
        parameter.requires_grad_()
    return held


def rest(model: nn.Module, held: Collection[str]) -> None:
    """Spares the backward pass the gradients of the parameters named in `held`, where a single worker has them all and
    nothing but its updater waits for them."""
    for name, parameter in model.named_parameters():
        if name in held:
            parameter.requires_grad_(False)


def thaw(model: nn.Module) -> None:
    """Has all parameters take gradients again, and lets the layers take part in `train` that `model_surgery.still_norms` keeps
    out of it, those of BatchNorm."""
    for parameter in model.parameters():
        parameter.requires_grad_()
    for module in model.modules():
        if "train" in vars(module):
            del module.train  # the instance's, before which the class's was hidden
            module.train(model.training)
