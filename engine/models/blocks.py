"""The blocks that a model is built of, which are sharded and computed again as one."""

from __future__ import annotations

from torch import nn

_ROWS = (nn.Sequential, nn.ModuleList)
"""Modules that hold others in order."""


def blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The blocks of `model` by their dotted paths, in order: ResNet's BasicBlocks, ViT's encoder layers and so on.

    A block is an item of a Sequential or ModuleList that holds several layers with weights of their own, and is
    not itself a row of such; of blocks within blocks the outermost counts. Empty where there are none.
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
    """Whether several modules in it have weights of their own."""
    return sum(any(True for _ in part.parameters(recurse=False)) for part in module.modules()) > 1


def _is_row_of_blocks(module: nn.Module) -> bool:
    return isinstance(module, _ROWS) and any(map(_has_layers, module.children()))
