"""Conversion between the state of a plain model and the states of its pipeline stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from engine.optim.host_copies import copy_to_host
from engine.torch_compat import buffers_of


class PlainState:
    """Mapping between the state of `model` and the states of the pipeline `stages` made from it.

    If `model` is on the meta device, a state can be loaded into the stages, but the stages' states can't be joined.
    """

    def __init__(self, model: nn.Module, stages: Sequence[nn.Module]) -> None:
        state = model.state_dict(keep_vars=True)
        self._names = list(state)
        in_stages = {name for stage in stages for name in stage.state_dict()}
        stage_names = {id(tensor): name for name, tensor in state.items() if name in in_stages}
        # A tensor with two names appears in a stage under one of them. `_aliases` maps the other name to this one.
        self._aliases = {
            name: stage_names[id(tensor)]
            for name, tensor in state.items()
            if name not in in_stages and id(tensor) in stage_names
        }
        # Tensors that no stage uses
        self._unused = copy_to_host(
            {
                name: tensor
                for name, tensor in state.items()
                if name not in in_stages and name not in self._aliases and not tensor.is_meta
            }
        )

    def join(self, states: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Combine the states of all stages into the plain model's state."""
        complete = {name: tensor for state in states for name, tensor in state.items()}
        complete |= {alias: complete[name] for alias, name in self._aliases.items()}
        complete |= self._unused
        return {name: complete[name] for name in self._names}

    def load(self, stages: Iterable[nn.Module], state: dict[str, Tensor]) -> None:
        """Load the `state` of a plain model into this rank's `stages`.

        Tensors of the state that no stage uses are retained for later calls of `join`.
        """
        for stage in stages:
            stage.load_state_dict({name: state.get(name, tensor) for name, tensor in stage.state_dict().items()})
        self._unused = copy_to_host({name: state[name] for name in self._unused})


def share_buffers(trained: nn.Module, evaluated: nn.Module) -> None:
    """Make the graphs of a stage for training and evaluation share their buffers again.

    Moving them to a device may have copied the buffers.
    """
    names = {name for name, _ in evaluated.named_buffers()}
    for name, buffer in trained.named_buffers():
        if name in names:
            module, _, local_name = name.rpartition(".")
            buffers_of(evaluated.get_submodule(module))[local_name] = buffer
