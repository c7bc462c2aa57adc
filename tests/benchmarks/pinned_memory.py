"""Pinned memory for the copy of a checkpoint: `python tests/benchmarks/pinned_memory.py [MODEL …]`.

The benchmark counts, without a GPU, the bytes that PyTorch allocates for copies of a model, its AdamW state and its
averages. PyTorch rounds each allocation of pinned memory up to a power of two (ATen/core/CachingHostAllocator.h) and
never frees it. One copy per tensor is compared with the blocks of `copy_to_host`. The exit code is 1 if these take more
than 1.1 of the state's size.
"""

from __future__ import annotations

import sys

import torch
import torchvision

from engine.optim.host_copies import assign_to_blocks
from tests.benchmarks.frame import make_parser

AIM = 1.1
MIB = 1 << 20
MODELS = ("resnet50", "vit_b_16", "convnext_tiny", "efficientnet_b0", "swin_v2_t")


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    worst = 0.0
    for name in parser.parse_args().models:
        with torch.device("meta"):
            model = torchvision.models.get_model(name)
        parameters = [parameter.nbytes for parameter in model.parameters()]
        total = each_alone = packed = 0
        for sizes in ([tensor.nbytes for tensor in model.state_dict().values()], 3 * parameters):
            total += sum(sizes)
            each_alone += sum(1 << (size - 1).bit_length() for size in sizes)
            packed += sum(assign_to_blocks(sizes)[0])
        worst = max(worst, packed / total)
        print(
            f"{name}: state {total / MIB:.0f} MiB, a copy per tensor {each_alone / MIB:.0f} MiB "
            f"({each_alone / total:.2f}), in blocks {packed / MIB:.0f} MiB ({packed / total:.2f})"
        )
    print(f"the worst is {worst:.2f} of the state; the aim is {AIM}")
    return int(worst > AIM)


if __name__ == "__main__":
    sys.exit(main())
