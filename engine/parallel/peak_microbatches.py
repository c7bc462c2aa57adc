"""Maximum number of microbatches whose activations a pipeline stage stores at a time. This module is pure arithmetic.

A forward pass increases the number by one, and a backward pass decreases it by one. Under the zero-bubble schedules,
this is the backward pass for the weights. The orders of passes are those of torch.distributed.pipelining, after Huang
et al. 2019 (GPipe), Narayanan et al. 2021 (1F1B, interleaved) and Qi et al. 2023 (ZB1P, ZBV).
"""

from __future__ import annotations


def find_peaks_in_flight(schedule: str, microbatches: int, stage_ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the maximum number of microbatches whose activations each stage stores at a time under `schedule`.

    `microbatches` is the number per step, and `stage_ranks` has the rank of each stage.
    """
    stages = len(stage_ranks)
    devices = max(stage_ranks) + 1
    if schedule == "1f1b":
        peaks = [stages - stage for stage in range(stages)]
    elif schedule == "interleaved_1f1b":
        peaks = [_find_interleaved_peak(microbatches, devices, stages // devices, stage) for stage in range(stages)]
    elif schedule == "zb1p":
        # Warm-up as in 1F1B, but later stages retain more microbatches, for the backward passes for weights.
        peaks = [devices] * stages
    elif schedule == "zbv":
        # The first stage of a rank waits for the return from all later ranks, its second stage only for the next one.
        peaks = [2 * devices - rank for rank in range(devices)] + [rank + 1 for rank in reversed(range(devices))]
    else:
        peaks = [microbatches] * stages
    return tuple(min(microbatches, count) for count in peaks)


def _find_interleaved_peak(microbatches: int, devices: int, stages_per_device: int, stage: int) -> int:
    """Return the maximum number of microbatches whose activations a stage of interleaved 1F1B stores at a time.

    A device first executes some forward passes (the warm-up), and then alternates between forward and backward passes.
    It processes a round of microbatches in one of its stages before it continues with another stage. In forward passes,
    it proceeds from its first stage to its last, and in backward passes from its last to its first.
    """
    rank, chunk = stage % devices, stage // devices  # the stage is number `chunk` of the stages on device `rank`
    per_round = microbatches // max(1, microbatches // devices)
    all_passes = microbatches * stages_per_device
    warmup = min((stages_per_device - 1) * per_round + 2 * (devices - 1 - rank), all_passes)

    def passes_in_stage(passes: int, earlier_stages: int) -> int:
        """Return how many of the first `passes` forward (or backward) passes of the stage's device are in this stage.

        In each round, the device visits `earlier_stages` of its stages before this one.
        """
        complete_rounds, last_round_passes = divmod(passes, per_round * stages_per_device)
        in_last_round = min(max(last_round_passes - earlier_stages * per_round, 0), per_round)
        return complete_rounds * per_round + in_last_round

    return max(
        passes_in_stage(min(warmup + backward + 1, all_passes), chunk)
        - passes_in_stage(backward, stages_per_device - 1 - chunk)
        for backward in range(max(1, all_passes - warmup))
    )
