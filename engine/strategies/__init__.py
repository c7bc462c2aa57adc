"""How a model and each batch are laid on the devices: one file per strategy, and those of plug-ins."""

from __future__ import annotations

from engine.strategies.base import StepResult, Strategy, StrategyError
from engine.strategies.data_parallel import DataParallel
from engine.strategies.ddp import DataParallelProcesses
from engine.strategies.fsdp import FullySharded
from engine.strategies.hsdp import HybridSharded
from engine.strategies.hybrid import PipelineReplicas
from engine.strategies.model_parallel import ModelParallel
from engine.strategies.pipeline import Pipeline
from engine.strategies.single import SingleDevice
from engine.strategies.tensor_parallel import ReplicatedTensorParallel, ShardedTensorParallel, TensorParallel
from engine.strategies.zero1 import ShardedOptimizer
from engine.system.plugins import Registry, Unusable


def _accept(name: str, loaded: object) -> type[Strategy]:
    if not (isinstance(loaded, type) and issubclass(loaded, Strategy)):
        raise Unusable(f"it is a {type(loaded).__name__}, not a subclass of Strategy of engine.strategies")
    if loaded.entry.id != name:
        raise Unusable(f"the id of its entry is “{loaded.entry.id}”")
    return loaded


_OWN: dict[str, type[Strategy]] = {
    strategy.entry.id: strategy
    for strategy in (
        SingleDevice,
        DataParallel,
        DataParallelProcesses,
        ShardedOptimizer,
        FullySharded,
        ModelParallel,
        Pipeline,
        PipelineReplicas,
        HybridSharded,
        TensorParallel,
        ReplicatedTensorParallel,
        ShardedTensorParallel,
    )
}
STRATEGIES: Registry[type[Strategy]] = Registry("footplate.strategies", _OWN, _accept)
"""Every strategy by its id; there is no fallback from one to another."""

__all__ = ["STRATEGIES", "StepResult", "Strategy", "StrategyError"]
