"""Prometheus output, parsed according to its format's rules."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from engine.cli.gpus.prometheus import FAMILIES, METRICS, format_exposition
from engine.contract.devices import Mig, Nvml, Snapshot
from tests.engine.cli.machines import GIB, NOON, busy_gpu, full_gpu, gpu, instance, machine

SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\\\|\\"|\\n)*)"(?:,|$)')


class Sample(NamedTuple):
    labels: dict[str, str]
    value: float


def parse_exposition(snapshot: Snapshot) -> dict[str, list[Sample]]:
    """Return all samples of each metric in the Prometheus output.

    Check that HELP and TYPE appear once per metric, before its samples.
    """
    text = format_exposition(snapshot)
    assert text.endswith("\n")
    metrics: dict[str, list[Sample]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in metrics
            metrics[name] = []
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2] == name
            assert line.split(" ")[3] in ("gauge", "counter")
            assert metrics[name] == []
        else:
            match = SAMPLE.match(line)
            assert match is not None, line
            assert match[1] == name
            assert LABEL.sub("", match[2]) == "", line
            metrics[name].append(Sample(dict(LABEL.findall(match[2])), float(match[3])))
    series = [(name, *sorted(sample.labels.items())) for name, samples in metrics.items() for sample in samples]
    assert len(series) == len(set(series))
    assert all(metrics.values())
    return metrics


def test_exposition_has_dcgm_names_and_units() -> None:
    values = {name: samples[0].value for name, samples in parse_exposition(machine(full_gpu(0))).items()}
    expected = {
        "DCGM_FI_DEV_GPU_UTIL": 87, "DCGM_FI_DEV_MEM_COPY_UTIL": 31, "DCGM_FI_DEV_ENC_UTIL": 0, "DCGM_FI_DEV_DEC_UTIL": 3,
        "DCGM_FI_DEV_FB_USED": 41 * 1024, "DCGM_FI_DEV_FB_FREE": 98 * 1024, "DCGM_FI_DEV_FB_RESERVED": 512,
        "DCGM_FI_DEV_POWER_USAGE": 640.4, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 7.2e9,
        "DCGM_FI_DEV_GPU_TEMP": 61, "DCGM_FI_DEV_MEMORY_TEMP": 70,
        "DCGM_FI_DEV_SM_CLOCK": 1980, "DCGM_FI_DEV_MEM_CLOCK": 3201, "DCGM_FI_DEV_XID_ERRORS": 79,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 4, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": 9, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": 2,
        "DCGM_FI_DEV_RETIRED_SBE": 5, "DCGM_FI_DEV_RETIRED_DBE": 6, "DCGM_FI_DEV_RETIRED_PENDING": 0,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 7, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 1,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 3,
        "DCGM_FI_PROF_PCIE_RX_BYTES": 2.5e9, "DCGM_FI_PROF_PCIE_TX_BYTES": 1.25e8,
        "DCGM_FI_PROF_SM_ACTIVE": 0.75, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.405, "DCGM_FI_DEV_COMPUTE_MODE": 3,
        "footplate_nvml_up": 1, "footplate_gpu_lost": 0, "footplate_cpu_load_percent": 20,
        "footplate_host_memory_total_bytes": 8 * GIB, "footplate_host_memory_used_bytes": 2 * GIB,
        "footplate_snapshot_timestamp_seconds": NOON,
    }  # fmt: skip
    assert {name: values[name] for name in expected} == pytest.approx(expected)


def test_exposition_contains_every_metric() -> None:
    samples = parse_exposition(machine(full_gpu(0)))
    assert {metric.name for metric in (*METRICS, *FAMILIES)} <= set(samples)


def test_exposition_has_dcgm_labels() -> None:
    (sample,) = parse_exposition(machine(busy_gpu(1)))["DCGM_FI_DEV_GPU_UTIL"]
    assert sample.labels == {
        "gpu": "1",
        "UUID": "GPU-1",
        "pci_bus_id": "00000000:0B:00.0",
        "device": "nvidia1",
        "modelName": "NVIDIA H200",
        "Hostname": "atlas",
        "DCGM_FI_DRIVER_VERSION": "570.86.15",
    }


def test_exposition_labels_mig_instances() -> None:
    parent = busy_gpu(2)
    parts = [instance(parent, number, memory_used_bytes=GIB) for number in (1, 5)]
    shared = Mig(parent_uuid=parent.uuid, gpu_instance=5, compute_instance=1, profile="1c.2g.35gb")
    neighbor = gpu(2, mig=shared, memory_used_bytes=GIB)
    samples = parse_exposition(machine(parent, *parts, neighbor))["DCGM_FI_DEV_FB_USED"]
    assert [sample.labels["UUID"] for sample in samples] == ["GPU-2"] * 4
    assert [sample.labels.get("GPU_I_ID") for sample in samples] == [None, "1", "5", "5"]
    assert [sample.labels.get("compute_instance") for sample in samples] == [None, "0", "0", "1"]
    assert samples[1].labels["GPU_I_PROFILE"] == "1g.18gb"
    assert samples[1].labels["device"] == "nvidia2"


def test_exposition_omits_unknown_values() -> None:
    assert not [name for name in parse_exposition(machine(gpu(0))) if name.startswith("DCGM_")]


def test_exposition_omits_old_values() -> None:
    samples = parse_exposition(machine(full_gpu(0, lost=True), busy_gpu(1), full_gpu(2, asleep=True)))
    assert [sample.labels["gpu"] for sample in samples["DCGM_FI_DEV_GPU_UTIL"]] == ["1"]
    assert [sample.value for sample in samples["footplate_gpu_lost"]] == [1, 0, 0]
    assert [sample.value for sample in samples["footplate_gpu_asleep"]] == [0, 0, 1]
    silent = parse_exposition(machine(full_gpu(0), nvml=Nvml("not_answering", "NVML is not answering.")))
    assert silent["footplate_nvml_up"][0].value == 0
    assert not [name for name in silent if name.startswith(("DCGM_", "footplate_gpu"))]


def test_exposition_has_a_series_per_reason_and_link() -> None:
    samples = parse_exposition(machine(full_gpu(0, throttled=("power_cap", "thermal"))))
    reasons = {sample.labels["reason"]: sample.value for sample in samples["footplate_gpu_throttled"]}
    assert len(reasons) == 9
    assert {reason for reason, value in reasons.items() if value} == {"power_cap", "thermal"}
    links = {sample.labels["link"]: sample.value for sample in samples["footplate_nvlink_active"]}
    assert links == {"0": 1, "1": 0}


def test_exposition_escapes_labels() -> None:
    (sample,) = parse_exposition(machine(busy_gpu(0, name='a\\b "c"\nd')))["DCGM_FI_DEV_GPU_UTIL"]
    assert sample.labels["modelName"] == 'a\\\\b \\"c\\"\\nd'


def test_exposition_keeps_all_digits() -> None:
    text = format_exposition(machine(busy_gpu(0, energy_j=123_456_789_012.345)))
    assert re.search(r"^DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION\{.*\} 123456789012345$", text, re.MULTILINE)
