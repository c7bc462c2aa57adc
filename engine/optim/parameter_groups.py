"""Parameter groups, which determine the weight decay and learning rate of each parameter."""

from __future__ import annotations

from typing import Any

from torch import nn

from engine.contract.job import Job
from engine.models.blocks import list_blocks
from engine.models.model_surgery import get_heads
from engine.optim.optimizer_step import Group

_TOKEN_NAMES = ("cls_token", "class_token", "dist_token", "reg_token", "pos_embed", "pos_embedding", "_bias_table")
"""Ends of the names of tokens and position embeddings in timm and torchvision, which get no weight decay."""


def create_parameter_groups(model: nn.Module, job: Job) -> dict[str, Group]:
    """Return the group of each parameter of the plain `model`, by name.

    Unless the job requests it, there is no weight decay for norms, biases and tokens: parameters with fewer than two
    dimensions, with the name of a token, or listed by a timm model as such. The learning rate of each layer is
    `layer_decay` times that of the next layer (Clark et al. 2020, ELECTRA; Bao et al. 2022, BEiT). In the head, it is
    `head_rate` times the job's learning rate.
    """
    depths, head = _compute_depths(model), tuple(f"{name}." for name in get_heads(model))
    backbone_depth = max((depth for name, depth in depths.items() if not name.startswith(head)), default=0)
    # Depth of the layer with the full rate: the head or, without a head, the last layer. Those before it have less.
    full_rate_depth = backbone_depth + 1 if head else backbone_depth
    no_weight_decay: Any = getattr(model, "no_weight_decay", set)  # timm's models define this method
    without_decay = set(no_weight_decay())
    groups = {}
    for name, parameter in model.named_parameters():
        if name.startswith(head):
            rate = job.optimizer.head_rate
        else:
            rate = job.optimizer.layer_decay ** (full_rate_depth - depths[name])
        is_norm_or_token = parameter.ndim < 2 or name in without_decay or name.endswith(_TOKEN_NAMES)
        groups[name] = Group(rate, decays=job.optimizer.decay_norms or not is_norm_or_token)
    return groups


def _compute_depths(model: nn.Module) -> dict[str, int]:
    """Return the depth of each parameter by name: the number of its layer, counted from 1, or 0 before the first layer.

    Layers are in the order of the model's definition. A layer is a block or, in models without blocks, a module with
    weights. Parameters between blocks belong to the block before them.
    """
    blocks = [name for name, _ in list_blocks(model)]
    leaves = [name for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))]
    prefixes = [f"{name}." for name in blocks or leaves]
    depths, depth, current_prefix = {}, 0, ""
    for name, _ in model.named_parameters():
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), current_prefix)
        if prefix != current_prefix:
            depth, current_prefix = depth + 1, prefix
        depths[name] = depth
    return depths
