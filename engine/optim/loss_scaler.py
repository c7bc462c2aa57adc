"""Loss scaling for fp16 with the same scale on all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from engine.torch_compat import create_scale, mark_unscaled, scale_of, unscale_all


class AgreedScaler(GradScaler):
    """GradScaler that skips a step on all ranks if gradients overflow on any rank.

    `sum_over_shards` (`Strategy.sum_over_shards`) adds up the overflows of the ranks. Ranks also take part if they have
    no gradients or never scale a loss, as on the first stages of a pipeline. torch.distributed.fsdp.sharded_grad_scaler
    does the same for a single process group.
    """

    def __init__(self, device: torch.device, sum_over_shards: Callable[[Tensor], Tensor], *, enabled: bool) -> None:
        super().__init__(device.type, enabled=enabled)
        self._sum_over_shards = sum_over_shards
        if enabled:
            create_scale(self, device)  # `unscale_` needs it even on ranks that never scale a loss

    @torch.no_grad()
    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the scale, and record whether the gradients on all ranks are finite.

        All ranks call it together.
        """
        scale = scale_of(self)
        inverse = scale.double().reciprocal().float()
        overflows = torch.zeros_like(scale)
        gradients: dict[tuple[torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    gradients[parameter.grad.device, parameter.grad.dtype].append(parameter.grad)
        for (device, _), device_gradients in gradients.items():
            overflow = torch.zeros((), device=device)
            unscale_all(device_gradients, overflow, inverse.to(device))
            overflows += overflow.to(scale.device)
        # 1 on overflow: GradScaler checks if it is above 0, and optimizers skip their step if it is 1.
        mark_unscaled(self, optimizer, self._sum_over_shards(overflows).clamp(max=1.0))
