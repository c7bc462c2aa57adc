"""Repeated blocks of models, which are the units of sharding and of activation checkpointing."""

from __future__ import annotations

from torch import nn

_CONTAINERS = (nn.Sequential, nn.ModuleList)
"""Container modules that hold an ordered list of modules."""


def list_blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the blocks of `model` with their dotted paths, in order.

    Examples are ResNet's BasicBlocks and ViT's encoder layers. A block is an item of a Sequential or ModuleList. It
    contains several layers with weights, and is not itself a sequence of such items. If blocks are nested, only the
    outermost one counts.
    """
    blocks: list[tuple[str, nn.Module]] = []
    _collect_blocks(model, "", blocks, set())
    return blocks


def _collect_blocks(module: nn.Module, path: str, blocks: list[tuple[str, nn.Module]], visited: set[nn.Module]) -> None:
    """Append the blocks below `module`, whose path is `path`, to `blocks`.

    Modules in `visited` are skipped, since a module may have several parents. All modules below `module` are added to
    `visited`.
    """
    is_container = isinstance(module, _CONTAINERS)
    for name, child in module.named_children():
        if child in visited:
            continue
        visited.add(child)
        child_path = f"{path}.{name}" if path else name
        if is_container and _has_several_layers(child) and not _contains_blocks(child):
            blocks.append((child_path, child))
        else:
            _collect_blocks(child, child_path, blocks, visited)


def _has_several_layers(module: nn.Module) -> bool:
    """Return True if a module contains at least two modules with weights. A single layer is not a block."""
    return sum(any(True for _ in layer.parameters(recurse=False)) for layer in module.modules()) > 1


def _contains_blocks(module: nn.Module) -> bool:
    """Return True if a module is a container with an item that has several layers with weights."""
    return isinstance(module, _CONTAINERS) and any(map(_has_several_layers, module.children()))
