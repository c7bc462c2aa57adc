"""Why no numbers come from a host, in words."""

from __future__ import annotations

from collections.abc import Mapping

from engine.contract.devices import Snapshot


def trouble_words(latest: Mapping[str, Snapshot], troubles: Mapping[str, str]) -> list[str]:
    """A sentence for each host that is in trouble: its sampler's or connection's, else NVML's. That a host has not
    answered for the first time yet is no trouble.
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
