"""Peak number of microbatches whose activations each stage of a pipeline stores. Pure arithmetic.

The number grows by one with a stage's forward pass and shrinks by one with its backward pass; under the zero-bubble
schedules, with the backward pass for the weights. The orders are those of torch.distributed.pipelining, after Huang et
al. 2019 (GPipe), Narayanan et al. 2021 (1F1B, interleaved) and Qi et al. 2023 (ZB1P, ZBV).
"""

from __future__ import annotations


def in_flight(schedule: str, microbatches: int, stage_ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the peak number of microbatches for each stage under `schedule`."""
    stages = len(stage_ranks)
    devices = max(stage_ranks) + 1
    if schedule == "1f1b":
        peaks = [stages - stage for stage in range(stages)]
    elif schedule == "interleaved_1f1b":
        peaks = [_interleaved(microbatches, devices, stages // devices, stage) for stage in range(stages)]
    elif schedule == "zb1p":
        # Warm-up is that of 1F1B; later stages also retain more microbatches for the weights' passes.
        peaks = [devices] * stages
    elif schedule == "zbv":
        # A rank's stage on the way down waits for all ranks below, its stage on the way up only for the one before.
        peaks = [2 * devices - rank for rank in range(devices)] + [rank + 1 for rank in reversed(range(devices))]
    else:
        peaks = [microbatches] * stages
    return tuple(min(microbatches, count) for count in peaks)


def _interleaved(microbatches: int, devices: int, rounds: int, stage: int) -> int:
    """Return the peak of one stage of interleaved 1F1B, whose devices hold `rounds` stages each.

    A device executes `warmup` forward passes, then one forward and one backward pass in turn. It processes `together`
    microbatches at a time on each of its stages, starting with the first stage in forward passes and with the last
    stage in backward passes.
    """
    rank, chunk = stage % devices, stage // devices
    together = microbatches // max(1, microbatches // devices)
    every = microbatches * rounds
    warmup = min((rounds - 1) * together + 2 * (devices - 1 - rank), every)

    def of_this_stage(passes: int, chunks_before: int) -> int:
        complete, rest = divmod(passes, together * rounds)
        return complete * together + min(max(rest - chunks_before * together, 0), together)

    return max(
        of_this_stage(min(warmup + back + 1, every), chunk) - of_this_stage(back, rounds - 1 - chunk)
        for back in range(max(1, every - warmup))
    )
