"""How a model and each batch are laid on the devices: one file per strategy, registered in a plain dict."""

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

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.entry.id: strategy
    for strategy in (
        SingleDevice,
        DataParallel,
        DataParallelProcesses,
        FullySharded,
        ModelParallel,
        Pipeline,
        PipelineReplicas,
        HybridSharded,
    )
}
"""Every strategy by its id; nothing ever falls back from one to another."""

__all__ = ["STRATEGIES", "StepResult", "Strategy", "StrategyError"]
