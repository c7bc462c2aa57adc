"""Messages about hosts that send no values."""

from __future__ import annotations

from collections.abc import Mapping

from engine.contract.devices import Snapshot


def trouble_words(latest: Mapping[str, Snapshot], troubles: Mapping[str, str]) -> list[str]:
    """Return a sentence per failing host: its connection's, its sampler's, or NVML's error.

    Connecting hosts are left out.
    """
    names = sorted({*latest, *troubles}, key=lambda name: (name != "", name))
    found = []
    for name in names:
        snapshot = latest.get(name)
        said = troubles.get(name) or (_nvml_trouble(snapshot) if snapshot is not None else "")
        if said:
            found.append(f"{name}: {said}" if name and name not in said else said)
    return found


def _nvml_trouble(snapshot: Snapshot) -> str:
    still_looking = snapshot.nvml.status == "not_answering" and not snapshot.gpus
    return "" if snapshot.nvml.status == "ok" or still_looking else snapshot.nvml.message
