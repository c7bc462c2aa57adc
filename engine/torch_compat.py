"""What Footplate needs of torch that is private or differs between the supported versions; nothing else touches either.

Each function says which versions it is for, so that it can go when they do.
"""

from __future__ import annotations

from typing import Any


def send_nothing_to_oneself(stage: Any) -> None:
    """Keeps a pipeline's `stage` from greeting its neighbour where that lies on the same rank, as under ZBV.

    torch 2.11 opens each connection by a message, and gloo cannot send one to its own rank; from 2.12 on torch leaves
    such neighbours out (PipelineStage._warmup_forward_vote).
    """
    greetings = getattr(stage, "_get_init_p2p_neighbors_ops", None)
    if greetings is not None:
        stage._get_init_p2p_neighbors_ops = lambda: [op for op in greetings() if op.group_peer != stage.group_rank]
