"""Whether cuDNN's search for its fastest convolutions pays for detectors, whose shapes differ from step to step."""

from __future__ import annotations

from functools import partial

from engine.contract.events import StepMetrics
from engine.contract.job import Job
from tests.gpu.hooks import SEARCH
from tests.gpu.proof import Proof, prove
from tests.support.outlined import make_outlined

MODELS = {
    "ssdlite320_mobilenet_v3_large": "detection",
    "fasterrcnn_mobilenet_light": "detection",
    "maskrcnn_mobilenet_light": "instance_segmentation",
}
WARM = 10
"""Steps that do not count."""


def search(proof: Proof, *, model: str) -> None:
    """Steps a second with the search, without it, and as Footplate chooses."""
    side, batch, steps = (64, 2, 3) if proof.rehearsing else (256, 8, 60)
    warm = 1 if proof.rehearsing else WARM
    data = make_outlined(proof.folder / "data", {"train": 64, "val": 8}, side)
    job = Job(
        dataset=str(data), task=MODELS[model], model=model, image_size=side, batch_size=batch, epochs=1000,
        optimizer="adam", learning_rate=1e-4, compile="off", memory_format="contiguous", predictions=0,
        checkpoint_minutes=0, devices=(proof.gpu,),
    )  # fmt: skip
    rates = {}
    for wanted in ("on", "off", ""):
        hooked = {"prepare": "tests.gpu.hooks:set_search", "environment": {SEARCH: wanted}} if wanted else {}
        group = proof.start(job, every_step=True, threads=2, **hooked)
        group.read_steps(warm + steps)
        group.close()
        waited = {metrics.step: metrics.images_per_second for metrics in group.of(StepMetrics)}
        taken = [batch / waited[step] for step in range(warm + 1, warm + steps + 1)]
        rates[wanted] = batch * steps / sum(taken)
        proof.measure(f"{model}: cuDNN's search {wanted or 'as chosen'}", rates[wanted], "images/s")
    best = max(rates["on"], rates["off"])
    proof.measure(f"{model}: as chosen, of the better", rates[""] / best, "", at_least=0.95)


def main() -> None:
    prove({model: (partial(search, model=model), 120) for model in MODELS})


if __name__ == "__main__":
    main()
