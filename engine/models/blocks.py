"""The blocks that a model is built of, which are sharded and computed again as one."""

from __future__ import annotations

from torch import nn

_ROWS = (nn.Sequential, nn.ModuleList)
"""Modules that hold others in order."""


def blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the blocks of `model` by dotted path, in order: ResNet's BasicBlocks, ViT's encoder layers and so on.

    A block is an item of a Sequential or ModuleList that contains several layers with weights, and is not itself a row of
    such items; of nested blocks the outermost counts.
    """
    found: list[tuple[str, nn.Module]] = []
    _visit(model, "", found, set())
    return found


def _visit(module: nn.Module, path: str, found: list[tuple[str, nn.Module]], seen: set[nn.Module]) -> None:
    in_row = isinstance(module, _ROWS)
    for name, child in module.named_children():
        if child in seen:
            continue
        seen.add(child)
        dotted = f"{path}.{name}" if path else name
        if in_row and _has_layers(child) and not _is_row_of_blocks(child):
            found.append((dotted, child))
        else:
            _visit(child, dotted, found, seen)


def _has_layers(module: nn.Module) -> bool:
    """Return True if several modules in it have weights."""
    return sum(any(True for _ in part.parameters(recurse=False)) for part in module.modules()) > 1


def _is_row_of_blocks(module: nn.Module) -> bool:
    return isinstance(module, _ROWS) and any(map(_has_layers, module.children()))
