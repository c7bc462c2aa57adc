"""Detection and division of the layers that tensor parallelism computes on several ranks.

If only elementwise layers are between two linear layers, the first is divided by columns and the second by rows. Each
rank then computes some of the hidden units, and a single sum over the ranks yields the second layer's output. Attention
with one weight for queries, keys and values is divided by heads (Shoeybi et al. 2019, Megatron-LM).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional

from engine.optim.shards import pack_qkv

_ELEMENTWISE = (
    nn.Identity, nn.Dropout, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid,
    nn.Hardswish, nn.Hardsigmoid,
)  # fmt: skip
_MIN_INPUTS = 8
"""Minimum number of input features for dividing a layer.

Smaller layers, such as Swin V2's position biases, gain less than the sum over the ranks costs.
"""


class LayerPair(NamedTuple):
    """Two linear layers, or attention and its output projection, whose hidden units can be divided among ranks.

    Attributes:
        first: Layer that is divided by columns.
        second: Layer that is divided by rows.
        units: Number of hidden units or heads, which must be a multiple of the number of ranks.
        dropouts: Dropout layers between the two.
        elementwise: All elementwise layers in the sequence of layers that contains the pair. None of them, including
            those after `second`, may run in place.
        attention: Module with the heads, or None for an MLP.
    """

    first: nn.Linear | nn.MultiheadAttention
    second: nn.Linear
    units: int
    dropouts: tuple[nn.Dropout, ...] = ()
    elementwise: tuple[nn.Module, ...] = ()
    attention: Any = None


def find_layer_pairs(model: nn.Module) -> list[LayerPair]:
    """Find the pairs of layers in `model` that can be divided. Layers that share a weight with others are left out.

    The pairs are MLPs in a Sequential (torchvision's ViT, Swin, MaxViT, ConvNeXt, VGG), the attention of torchvision's
    ViT, and timm's `Mlp` and `Attention`.
    """
    users = Counter(parameter for module in model.modules() for parameter in module.parameters(recurse=False))
    # By layers, because several modules may contain the same layers.
    pairs = {(pair.first, pair.second): pair for module in model.modules() for pair in _find_pairs(module)}
    return [pair for pair in pairs.values() if all(users[parameter] == 1 for parameter in divided_parameters([pair]))]


def divided_parameters(pairs: Iterable[LayerPair]) -> list[nn.Parameter]:
    """Return the parameters of `pairs`, including the biases of second layers, which stay complete on every rank."""
    layers = (layer for pair in pairs for layer in (pair.first, pair.second))
    return [parameter for layer in layers for parameter in layer.parameters(recurse=False)]


def _find_pairs(module: Any) -> Iterator[LayerPair]:
    """Yield the pairs whose layers are direct children of `module`. Attention with dropout is left out."""
    if isinstance(module, nn.Sequential):
        yield from _find_linear_pairs(list(module))
    elif _has_class(module, "timm.layers.mlp.Mlp"):
        yield from _find_linear_pairs([module.fc1, module.act, module.drop1, module.norm, module.fc2])
    elif _has_class(module, "timm.layers.attention.Attention"):
        # Parameters of layers that all heads share would only get gradients from this rank's heads.
        shared_layers = (module.q_norm, module.k_norm, module.norm, getattr(module, "gate", None) or nn.Identity())
        if not module.attn_drop.p and all(isinstance(layer, nn.Identity) for layer in shared_layers):
            yield LayerPair(module.qkv, module.proj, module.num_heads, attention=module)
    elif _has_class(module, "torchvision.models.vision_transformer.EncoderBlock") and not module.self_attention.dropout:
        attention = module.self_attention
        yield LayerPair(attention, attention.out_proj, attention.num_heads, attention=attention)


def _has_class(module: nn.Module, name: str) -> bool:
    """Return True if the class of `module` has this qualified name. The class need not be imported."""
    return f"{type(module).__module__}.{type(module).__qualname__}" == name


def _find_linear_pairs(layers: list[nn.Module]) -> Iterator[LayerPair]:
    """Yield non-overlapping pairs of linear layers in the sequence `layers`.

    At least one elementwise layer, and no other layer, is between them. A layer with fewer than `_MIN_INPUTS` inputs is
    never the first of a pair.
    """
    elementwise = tuple(module for module in layers if type(module) in _ELEMENTWISE)
    first: nn.Linear | None = None
    between: list[nn.Module] = []  # elementwise layers since `first`
    for module in layers:
        if type(module) is nn.Linear and first is not None and between:
            dropouts = tuple(each for each in between if isinstance(each, nn.Dropout))
            yield LayerPair(first, module, first.out_features, dropouts, elementwise)
            first = None
        elif type(module) is nn.Linear:
            first, between = (module if module.in_features >= _MIN_INPUTS else None), []
        elif type(module) in _ELEMENTWISE:
            between.append(module)
        else:
            first = None


def shard_layer_pairs(pairs: list[LayerPair], mesh: DeviceMesh, *, source: int | None) -> None:
    """Divide the layers of `pairs` over a 1-dimensional `mesh`, in place.

    The size of the mesh must divide the `units` of each pair, which are its hidden units or heads.

    The rank `source` of the mesh sends the weights. If it is None, each rank slices its own weights, which may be on
    the meta device.
    """
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    ranks, rank = mesh.size(), mesh.get_local_rank()
    for pair in pairs:
        if pair.attention is not None:
            for parameter in pair.first.parameters(recurse=False):
                parameter.data = pack_qkv(parameter.data, ranks)
            pair.attention.num_heads //= ranks  # its code then computes this rank's heads
        for layer in pair.elementwise:
            layer.inplace = False  # type: ignore[assignment] # autograd can't modify the output of a DTensor in place
        for dropout in pair.dropouts:
            dropout.__class__ = _SharedDropout
            dropout.ranks, dropout.rank = ranks, rank  # type: ignore[assignment]
        if isinstance(pair.first, nn.MultiheadAttention):
            pair.first.__class__ = _SharedAttention
            for name, parameter in list(pair.first.named_parameters(recurse=False)):
                slices = distribute_tensor(parameter.data, mesh, [Shard(0)], src_data_rank=source)
                pair.first.register_parameter(name, nn.Parameter(slices))
        else:
            parallelize_module(pair.first, mesh, ColwiseParallel(), src_data_rank=source)
            if pair.attention is not None:  # timm's, which reshapes to this number of channels
                pair.attention.attn_dim //= ranks
        parallelize_module(pair.second, mesh, RowwiseParallel(), src_data_rank=source)


class _SharedAttention(nn.MultiheadAttention):
    """Self-attention over this rank's heads, a replacement for the attention of torchvision's ViT.

    It expects [batch, tokens, channels], supports neither masks nor dropout, and returns no attention weights.
    """

    def forward(self, query: Tensor, key: Tensor, value: Tensor, need_weights: bool = False) -> Any:  # type: ignore[override]
        """Return the output and, in place of the attention weights, None.

        `query` is also used as key and value. It must be equal on all ranks.
        """
        from torch.distributed.tensor import DTensor, Replicate

        weight: Any = self.in_proj_weight
        tokens: Any = DTensor.from_local(query, weight.device_mesh, [Replicate()], run_check=False)
        # Queries, keys and values of this rank's heads. `num_heads` is also the number of heads of this rank.
        projected = functional.linear(tokens, weight, self.in_proj_bias).to_local()  # type: ignore[attr-defined]
        # Each [batch, heads, tokens, channels of a head].
        queries, keys, values = projected.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(queries, keys, values)
        # The weights of `out_proj` are divided by rows (`RowwiseParallel`), so it sums over the heads of all ranks.
        return self.out_proj(attended.transpose(1, 2).flatten(2)), None


class _SharedDropout(nn.Dropout):
    """Dropout on this rank's slice of the last dimension.

    All ranks compute the complete mask from the same random numbers, so that it equals the mask of a single device.
    """

    ranks: int
    rank: int

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        complete = torch.ones(*x.shape[:-1], self.ranks * x.shape[-1], dtype=x.dtype, device=x.device)
        return x * functional.dropout(complete, self.p).chunk(self.ranks, -1)[self.rank]
