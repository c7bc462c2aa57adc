"""Values that a GPU reports: the most important ones for its tile, and all in groups.

Values that a GPU doesn't report are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial

from engine.contract.devices import Gpu
from engine.gpus.quantities import BY_ID, THROTTLE_TEXTS
from engine.system.format import with_unit
from gui.format import clock, energy, format_quantity, localized, number, size
from gui.monitor.gpus.value_grid import LabeledValue
from gui.monitor.gpus.watched_gpu import EnergyUse, WatchedGpu
from gui.plots.line import find_nearest
from gui.sources.devices import device_format
from gui.sources.devices.history import DeviceHistory
from gui.style import theme
from gui.translation import tr

Read = Callable[[str], float | None]
"""Function that returns the value of a quantity by its id, or None if the GPU doesn't report it."""

GROUPS = (
    tr("Work"),
    tr("Memory"),
    tr("Power and heat"),
    tr("Clocks"),
    tr("Links"),
    tr("Memory errors"),
    tr("Identity"),
)


@dataclass(frozen=True)
class FigureGroup:
    """Group of a GPU's values. `title` is one of `GROUPS`."""

    title: str
    figures: tuple[LabeledValue, ...]


def list_graph_quantities(has_data: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the ids of the quantities in a GPU's graph, in the order of its readout.

    The first is the utilization or, if the GPU doesn't report it (a MIG instance), the activity of the multiprocessors.
    `has_data` returns True for the id of a quantity that the GPU reports.
    """
    load = "utilization_percent" if has_data("utilization_percent") else "sm_active_percent"
    return tuple(filter(has_data, (load, "memory_used_bytes", "power_w", "temperature_c")))


@cache
def _color_of(key: str, quantity: str) -> Callable[[], str]:
    """Return a function that returns the color of a quantity's line in the graph of the GPU with this key.

    Calls with the same arguments return the same function, so that line styles with it compare equal.
    """
    return partial(line_color, key, quantity)


def line_color(key: str, quantity: str) -> str:
    """Return the color of a quantity's line in the graph of the GPU with this key (`WatchedGpu.key`).

    Memory, power and temperature have fixed colors. The line of the load has the color of the device.
    """
    scheme = theme.colors()
    fixed_colors = {"memory_used_bytes": scheme.text, "power_w": scheme.muted, "temperature_c": scheme.error}
    return fixed_colors.get(quantity) or theme.device_color(key)


def line_scale(gpu: Gpu, quantity: str) -> float | None:
    """Return the factor that converts a quantity to the range 0 to 100, or None if its maximum is unknown.

    Percentages and °C remain unchanged. Other quantities become a percentage of their maximum.
    """
    if quantity in ("utilization_percent", "sm_active_percent", "temperature_c"):
        return 1.0
    highest = BY_ID[quantity].highest(gpu)
    return 100.0 / highest if highest else None


def make_current_reader(gpu: Gpu) -> Read:
    """Return a function that reads the current value of a quantity of `gpu`."""
    return lambda quantity: BY_ID[quantity].read(gpu)


def make_past_reader(history: DeviceHistory, key: str, time: float) -> Read:
    """Return a function that reads a quantity of the device with this key at the reading nearest to `time`.

    `time` is in seconds since `history.origin`. The value is NaN in a gap, and None if the quantity was never reported.
    """
    row = find_nearest(history.x(key), time)

    def read(quantity: str) -> float | None:
        return float(history.values(key, quantity)[row]) if history.has_data(key, quantity) else None

    return read


def list_tile_figures(watched: WatchedGpu, read: Read, used: EnergyUse | None) -> list[LabeledValue]:
    """Return the values that a GPU's tile shows, the most important ones first. Unknown values are left out.

    Values with a line in the GPU's graph get the line's color.

    Args:
        watched: GPU and its key.
        read: Returns the value of a quantity by its id, or None if it is unknown.
        used: Energy used since counting began, or None if the GPU doesn't report it.
    """
    gpu = watched.gpu
    pcie, links = _describe_pcie_link(gpu), sum(link.active for link in gpu.nvlinks)
    sm_key = watched.key if read("utilization_percent") is None else ""  # the graph then shows SM activity instead
    figures = [
        _format_quantity(tr("Utilization"), "utilization_percent", read, key=watched.key),
        _format_with_maximum(
            tr("Memory"), "memory_used_bytes", gpu, read, key=watched.key, more=_describe_reserved_memory(gpu)
        ),
        _format_temperature(
            tr("GPU temp."), "temperature_c", read, gpu.slowdown_c, key=watched.key, more=_describe_limits(gpu)
        ),
        _format_with_maximum(tr("Power"), "power_w", gpu, read, key=watched.key),
        _format_temperature(tr("Memory temp."), "memory_temperature_c", read, gpu.memory_max_c),
        _format_with_maximum(tr("SM clock"), "sm_clock_mhz", gpu, read),
        _format_quantity(tr("SMs active"), "sm_active_percent", read, key=sm_key),
        _format_quantity(tr("Tensor"), "tensor_active_percent", read),
        _format_quantity(tr("Fan"), "fan_percent", read),
        _format_link_rates(tr("PCIe {pcie}").format(pcie=pcie).strip(), "pcie", read)
        or _make_text("pcie", "PCIe", pcie, tr("The link to the host.")),
        _format_link_rates(tr("NVLink ×{links}").format(links=links), "nvlink", read),
        _format_energy(used),
        _format_quantity(tr("Memory bandwidth"), "memory_busy_percent", read),
        _format_with_maximum(tr("Memory clock"), "memory_clock_mhz", gpu, read),
        _format_quantity(tr("Encoder"), "encoder_percent", read),
        _format_quantity(tr("Decoder"), "decoder_percent", read),
    ]
    return [figure for figure in figures if figure is not None]


def list_groups(watched: WatchedGpu, read: Read, used: EnergyUse | None) -> list[FigureGroup]:
    """Return all values that a GPU reports, in groups. See `list_tile_figures` for the arguments."""
    gpu = watched.gpu
    figures_by_group = (
        _list_load(gpu, read),
        _list_memory(gpu, read),
        _list_power(gpu, read, used),
        _list_clocks(gpu, read),
        _list_links(gpu, read),
        _list_errors(gpu),
        _list_identity(watched),
    )
    reported = [tuple(figure for figure in figures if figure is not None) for figures in figures_by_group]
    return [FigureGroup(title, figures) for title, figures in zip(GROUPS, reported, strict=True) if figures]


Figures = Iterable[LabeledValue | None]
"""Values of a group, with None for those that the GPU doesn't report."""


def _list_load(gpu: Gpu, read: Read) -> Figures:
    """Yield load, compute mode, and the reasons why the clocks are reduced."""
    for quantity in (
        "utilization_percent", "sm_active_percent", "tensor_active_percent", "memory_busy_percent",
        "encoder_percent", "decoder_percent",
    ):  # fmt: skip
        yield _format_quantity(BY_ID[quantity].title, quantity, read)
    mode = gpu.compute_mode.replace("_", " ")
    meaning = tr("Whether several processes may use the GPU at the same time.")
    yield _make_text("compute_mode", tr("Compute mode"), mode, meaning)
    if gpu.throttled is not None:
        reasons = "; ".join(THROTTLE_TEXTS[reason] for reason in gpu.throttled) or tr("nothing")
        yield _make_text("throttled", tr("Clocks"), reasons, tr("Why the clocks are not higher."))


def _list_memory(gpu: Gpu, read: Read) -> Figures:
    yield _format_quantity(tr("In use"), "memory_used_bytes", read)
    yield _make_bytes("free", tr("Free"), gpu.memory_free_bytes, tr("Memory available to programs."))
    yield _make_bytes("reserved", tr("Reserved"), gpu.memory_reserved_bytes, tr("Memory reserved by the driver."))
    yield _make_bytes("total", tr("Total"), gpu.memory_total_bytes, tr("Total memory of the GPU."))


def _list_power(gpu: Gpu, read: Read, used: EnergyUse | None) -> Figures:
    """Yield power, energy, temperatures and their limits."""
    yield _format_quantity(tr("Power"), "power_w", read)
    meaning = tr("Maximum power draw; an administrator can change it.")
    yield _make_number("limit", tr("Power limit"), gpu.power_limit_w, meaning, "W")
    yield _format_energy(used)
    if gpu.energy_j is not None:
        meaning = tr("Energy used since the driver was loaded.")
        yield _make_text("energy_all", tr("Since the driver started"), energy(gpu.energy_j), meaning)
    yield _format_temperature(tr("GPU temp."), "temperature_c", read, gpu.slowdown_c)
    meaning = tr("The GPU lowers its clocks at this temperature.")
    yield _make_number("slowdown", tr("Slows down at"), gpu.slowdown_c, meaning, "°C")
    yield _make_number(
        "shutdown", tr("Shuts down at"), gpu.shutdown_c, tr("The GPU shuts down at this temperature."), "°C"
    )
    yield _format_temperature(tr("Memory temp."), "memory_temperature_c", read, gpu.memory_max_c)
    meaning = tr("Maximum operating temperature of the memory.")
    yield _make_number("memory_max", tr("Memory allowed"), gpu.memory_max_c, meaning, "°C")
    yield _format_quantity(tr("Fan"), "fan_percent", read)


def _list_clocks(gpu: Gpu, read: Read) -> Figures:
    yield _format_with_maximum(tr("SM clock"), "sm_clock_mhz", gpu, read)
    yield _format_with_maximum(tr("Memory clock"), "memory_clock_mhz", gpu, read)
    if gpu.performance_state is not None:
        meaning = tr("From P0 (maximum performance) to P15 (minimum power).")
        yield _make_text("performance_state", tr("Performance state"), f"P{gpu.performance_state}", meaning)


def _list_links(gpu: Gpu, read: Read) -> Figures:
    """Yield the state and the transfer rates of PCIe and NVLink."""
    pcie = gpu.pcie
    meaning = tr("An idle link may run slower.")
    yield _make_count("generation", tr("PCIe generation"), pcie.generation, pcie.max_generation, meaning)
    meaning = tr("Fewer than the maximum points to a narrow or faulty slot.")
    yield _make_count("width", tr("PCIe lanes"), pcie.width, pcie.max_width, meaning)
    for quantity in ("pcie_received_bytes_per_s", "pcie_sent_bytes_per_s"):
        yield _format_quantity(BY_ID[quantity].title, quantity, read)
    meaning = tr("PCIe packets that had to be resent. A rising count points to a faulty slot, riser or cable.")
    yield _make_number("replays", tr("PCIe replays"), pcie.replays, meaning)
    if gpu.nvlinks:
        active = tr("{active} of {total}").format(
            active=sum(link.active for link in gpu.nvlinks), total=len(gpu.nvlinks)
        )
        yield _make_text("links", tr("NVLinks active"), active, tr("Direct links to other GPUs or to a switch."))
    for quantity in ("nvlink_received_bytes_per_s", "nvlink_sent_bytes_per_s"):
        yield _format_quantity(BY_ID[quantity].title, quantity, read)


def _list_errors(gpu: Gpu) -> Figures:
    """Yield the counts of memory errors, and of memory that was or must be taken out of use."""
    ecc, retired = gpu.ecc, gpu.retired
    yield _make_flag("ecc", "ECC", ecc.enabled, ("on", "off"), tr("Whether memory errors are detected and corrected."))
    for id_, label, value, meaning in (
        ("corrected", tr("Corrected"), ecc.corrected, tr("Corrected errors since the driver was loaded; they are harmless.")),
        ("uncorrected", tr("Uncorrected"), ecc.uncorrected, tr("Uncorrected errors since the driver was loaded.")),
        ("total_corrected", tr("Corrected, all"), ecc.total_corrected, tr("Corrected errors over the GPU's life.")),
        ("total_uncorrected", tr("Uncorrected, all"), ecc.total_uncorrected, tr("Uncorrected errors over the GPU's life.")),
        ("pages_single", tr("Pages retired (1 bit)"), retired.pages_single_bit,
         tr("Memory pages permanently retired because of repeated single-bit errors.")),
        ("pages_double", tr("Pages retired (2 bit)"), retired.pages_double_bit,
         tr("Memory pages permanently retired because of a double-bit error each.")),
        ("rows_corrected", tr("Rows remapped (corrected)"), retired.rows_corrected,
         tr("Memory rows remapped to spare rows because of repeated corrected errors.")),
        ("rows_uncorrected", tr("Rows remapped (uncorr.)"), retired.rows_uncorrected,
         tr("Memory rows remapped to spare rows because of an uncorrected error each.")),
    ):  # fmt: skip
        yield _make_number(id_, label, value, meaning, bad=id_ == "uncorrected")
    pending = tr("Whether a GPU reset or a reboot is needed to take faulty memory out of use.")
    for name, is_pending in (("pages_pending", retired.pages_pending), ("rows_pending", retired.rows_pending)):
        yield _make_flag(name, tr("Waits for a reset"), is_pending, ("yes", "no"), pending, bad=True)
    failed = tr("Whether remapping faulty memory failed; if so, replace the GPU.")
    yield _make_flag("rows_failed", tr("Remapping failed"), retired.rows_failed, ("yes", "no"), failed, bad=True)


def _list_identity(watched: WatchedGpu) -> Figures:
    """Yield the names, indices, addresses, modes and driver versions of the GPU."""
    gpu = watched.gpu
    numbers = device_format.describe_gpu_numbers(gpu)
    yield _make_text("name", tr("Chip"), gpu.name)
    yield _make_text("host", tr("Host"), watched.host)
    yield _make_text("numbers", tr("Numbers"), numbers, tr("CUDA and NVML number GPUs differently."))
    yield _make_text("uuid", "UUID", gpu.uuid, tr("Identifies the GPU in any slot."))
    yield _make_text("pci", tr("PCI address"), gpu.pci_bus_id or "")
    if gpu.mig is not None:
        meaning = tr("The instance's share of the GPU's compute and memory.")
        yield _make_text("profile", tr("MIG profile"), gpu.mig.profile, meaning)
    yield _make_flag("mig", "MIG", gpu.mig_enabled, ("on", "off"), tr("Whether the GPU is partitioned into instances."))
    keeps = tr("Whether the driver stays loaded while the GPU is unused; otherwise the first use takes seconds.")
    yield _make_flag("persistence", tr("Persistence"), gpu.persistence, ("on", "off"), keeps)
    yield _make_text("driver", tr("Driver"), watched.driver)
    yield _make_text("cuda", "CUDA", watched.cuda, tr("The newest CUDA version that the driver supports."))


def _format_quantity(label: str, quantity: str, read: Read, *, key: str = "") -> LabeledValue | None:
    value = read(quantity)
    return None if value is None else _make_figure(label, quantity, format_quantity(BY_ID[quantity], value), key=key)


def _format_with_maximum(
    label: str, quantity: str, gpu: Gpu, read: Read, *, key: str = "", more: str = ""
) -> LabeledValue | None:
    """Format the value of a quantity with its maximum, as in "41.2 of 140.4 GiB". Return None if it is unknown.

    Args:
        label: Label of the value.
        quantity: Id of the quantity.
        gpu: GPU, which determines the maximum.
        read: Returns the value of a quantity by its id.
        key: Key of the GPU if the value has the color of the quantity's line in the graph, otherwise "".
        more: Sentence that is added to the quantity's meaning in the tool tip.
    """
    value = read(quantity)
    if value is None:
        return None
    highest = BY_ID[quantity].highest(gpu)
    text = format_quantity(BY_ID[quantity], value)
    if highest:
        number_text = text.rpartition(" ")[0] or text  # only the maximum has a unit
        text = tr("{value} of {highest}").format(value=number_text, highest=format_quantity(BY_ID[quantity], highest))
    return _make_figure(label, quantity, text, key=key, more=more)


def _format_temperature(
    label: str, quantity: str, read: Read, highest: float | None, *, key: str = "", more: str = ""
) -> LabeledValue | None:
    """Format the temperature `quantity`, which is alarming from `highest` °C on, or return None if it is unknown.

    See `_format_with_maximum` for the other arguments.
    """
    value = read(quantity)
    if value is None:
        return None
    too_hot = highest is not None and value >= highest
    return _make_figure(label, quantity, format_quantity(BY_ID[quantity], value), key=key, more=more, alarming=too_hot)


def _make_figure(
    label: str, quantity: str, text: str, *, key: str = "", more: str = "", alarming: bool = False
) -> LabeledValue:
    """Return `text`, the formatted value of the quantity with the id `quantity`, with a label, tool tip and color.

    Args:
        label: Label of the value.
        quantity: Id of the quantity.
        text: Formatted value.
        key: Key of the GPU if the value has the color of the quantity's line in the graph, otherwise "".
        more: Sentence that is added to the quantity's meaning in the tool tip.
        alarming: True to display the value in the warning color.
    """
    meaning = f"{BY_ID[quantity].meaning} {more}".strip()
    color = _color_of(key, quantity) if key else None
    return LabeledValue(quantity, label, text, meaning, color, alarming)


def _format_link_rates(label: str, link: str, read: Read) -> LabeledValue | None:
    """Format the data rates of a link, as in "↓ 1.20 ↑ 0.40 GB/s", or return None if both are unknown.

    `link` is the start of the names of the quantities, such as "pcie" for "pcie_received_bytes_per_s".
    """
    received, sent = read(f"{link}_received_bytes_per_s"), read(f"{link}_sent_bytes_per_s")
    if received is None and sent is None:
        return None
    rates = [f"{sign} {number(1e-9 * rate, 2)}" for sign, rate in (("↓", received), ("↑", sent)) if rate is not None]
    return LabeledValue(link, label, f"{' '.join(rates)} GB/s", tr("What the GPU receives (↓) and sends (↑)."))


def _format_energy(used: EnergyUse | None) -> LabeledValue | None:
    """Return the energy that a GPU has used since its counter was reset, or None if `used` is None."""
    if used is None:
        return None
    since = clock(used.since)
    meaning = tr("Energy used since {since}. The counter can be reset from the menu.").format(since=since)
    label = tr("Energy since {time}").format(time=since.rpartition(":")[0])
    return LabeledValue("energy", label, energy(used.joules), meaning)


def _make_text(name: str, label: str, text: str, meaning: str = "") -> LabeledValue | None:
    return LabeledValue(name, label, text, meaning) if text else None


def _make_number(
    name: str, label: str, value: float | None, meaning: str, unit: str = "", *, bad: bool = False
) -> LabeledValue | None:
    """Return a labeled number, or None if `value` is None. `name` is its id, and `meaning` its tool tip.

    If `bad`, the number is displayed in the warning color unless it is 0.
    """
    if value is None:
        return None
    return LabeledValue(name, label, with_unit(localized(value), unit), meaning, alarming=bad and value > 0)


def _make_bytes(name: str, label: str, value: int | None, meaning: str) -> LabeledValue | None:
    return None if value is None else LabeledValue(name, label, size(value, "GiB"), meaning)


def _make_count(name: str, label: str, value: int | None, highest: int | None, meaning: str) -> LabeledValue | None:
    """Return a labeled number, or None if `value` is None. `name` is its id, and `meaning` its tool tip.

    If the maximum `highest` is known, the text contains it, as in "4 of 5".
    """
    if value is None:
        return None
    return LabeledValue(
        name,
        label,
        tr("{value} of {highest}").format(value=value, highest=highest) if highest is not None else f"{value}",
        meaning,
    )


def _make_flag(
    name: str, label: str, value: bool | None, texts: tuple[str, str], meaning: str, *, bad: bool = False
) -> LabeledValue | None:
    """Return a labeled flag, or None if `value` is None. `name` is its id, and `meaning` its tool tip.

    `texts` are the texts for True and False. If `bad`, True is displayed in the warning color.
    """
    if value is None:
        return None
    text_if_true, text_if_false = texts
    return LabeledValue(name, label, text_if_true if value else text_if_false, meaning, alarming=bad and value)


def _describe_reserved_memory(gpu: Gpu) -> str:
    """Return a sentence about the memory that the driver reserves, or "" if it is unknown."""
    if gpu.memory_reserved_bytes is None:
        return ""
    reserved = size(gpu.memory_reserved_bytes, "GiB")
    return tr("The driver reserves another {reserved}.").format(reserved=reserved)


def _describe_limits(gpu: Gpu) -> str:
    """Describe the temperature limits, as in "It slows down at 87 °C and shuts down at 92 °C."."""
    if gpu.slowdown_c is None and gpu.shutdown_c is None:
        return ""
    if gpu.shutdown_c is None:
        text = tr("It slows down at {slowdown:.0f} °C.")
    elif gpu.slowdown_c is None:
        text = tr("It shuts down at {shutdown:.0f} °C.")
    else:
        text = tr("It slows down at {slowdown:.0f} °C and shuts down at {shutdown:.0f} °C.")
    return text.format(slowdown=gpu.slowdown_c, shutdown=gpu.shutdown_c)


def _describe_pcie_link(gpu: Gpu) -> str:
    """Describe the PCIe generation and lanes, as in "5 ×16"."""
    generation = "" if gpu.pcie.generation is None else f"{gpu.pcie.generation}"
    width = "" if gpu.pcie.width is None else f"×{gpu.pcie.width}"
    return f"{generation} {width}".strip()
