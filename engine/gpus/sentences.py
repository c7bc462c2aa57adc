"""Texts for users about the state of NVML, with remedies."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.devices import Nvml, NvmlStatus

NO_LIBRARY = (
    "NVIDIA's library NVML was not found: if this machine has an NVIDIA GPU, install the NVIDIA driver, which includes "
    "the library."
)
NO_LIBRARY_IN_CONTAINER = (
    "NVIDIA's library NVML was not found: if the host has an NVIDIA GPU, start the container with GPU access "
    "(docker run --gpus all …), or install the NVIDIA driver, which includes the library."
)
NO_GPUS_IN_CONTAINER = (
    "The host's NVIDIA driver is loaded, but this container was started without its GPUs: start it with GPU access "
    "(docker run --gpus all … or podman run --device nvidia.com/gpu=all …)."
)
LIBRARY_MISSING = (
    "The NVIDIA driver is loaded, but its library NVML was not found: install the driver again, with its libraries."
)
NO_DRIVER = "The NVIDIA driver is not loaded: restart the computer, or reinstall the driver if that does not help."
VERSION_MISMATCH = (
    "The NVIDIA driver in use and its library have different versions, as after an update: restart the computer."
)
DRIVER_TOO_OLD = "The NVIDIA driver is too old for Footplate: install a newer one."
NO_PERMISSION = (
    "This user may not use the NVIDIA GPUs: ask for access to /dev/nvidia*, or in a container start it with GPUs."
)
WRONG_MODULE = (
    "Another package has overwritten the module pynvml: run “pip uninstall pynvml nvidia-ml-py”, "
    "then “pip install nvidia-ml-py”."
)
NO_MODULE = "The module pynvml is missing: run “pip install nvidia-ml-py”."
NO_GPU = (
    "The NVIDIA driver answers, but lists no GPU: check that the card is seated and powered, and read the driver's log."
)
SLEEPING = "The NVIDIA GPU is asleep, and Footplate does not wake it: it appears as soon as a program uses it."
ASKING = "Waiting for NVML to list the GPUs."


def explain_missing_library(*, driver_loaded: bool, in_container: bool) -> str:
    """Explain that the NVML library is missing, with the remedy."""
    if driver_loaded:
        return NO_GPUS_IN_CONTAINER if in_container else LIBRARY_MISSING
    return NO_LIBRARY_IN_CONTAINER if in_container else NO_LIBRARY


def explain_missing_driver(*, driver_loaded: bool, in_container: bool) -> str:
    """Explain that the NVML library does not find a driver, with the remedy.

    In a container, the driver may still be loaded.
    """
    return NO_GPUS_IN_CONTAINER if driver_loaded and in_container else NO_DRIVER


def explain_missing_permission(denied_files: Sequence[str]) -> str:
    """Explain that permissions are missing. The text names the `denied_files`, which the user may not open."""
    if not denied_files:
        return NO_PERMISSION
    return (
        f"This user has no permission to open {', '.join(denied_files)}: get permission to read and write there, "
        f"for example by joining the group that “ls -l /dev/nvidia*” shows."
    )


def create_silent_state(silent_s: float) -> Nvml:
    """Create the state of NVML for a reader that has sent nothing for `silent_s` seconds."""
    return Nvml(
        "not_answering",
        f"NVML is not answering (for {silent_s:.0f} s): the values shown are the last known ones, and "
        "Footplate keeps trying; if this lasts, restart the computer.",
    )


def create_crashed_state(cause: str) -> Nvml:
    """Create the state of NVML after a crash of the reader. `cause` is a text such as "SIGABRT"."""
    return Nvml(
        "error",
        f"NVML crashed ({cause}): the values shown are the last known ones, and Footplate keeps trying; "
        "if this lasts, a newer driver may help.",
    )


def explain_failure(detail: str) -> tuple[NvmlStatus, str]:
    """Return the status "error" and an explanation of an error without a known cause. `detail` is the error's message."""
    return "error", f"NVML reported an error ({detail}): Footplate keeps trying; if this lasts, run nvidia-smi."
