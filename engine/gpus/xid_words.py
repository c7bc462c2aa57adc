"""What the errors that NVIDIA's driver reports of a GPU mean, in plain words.

The numbers and their causes are those of NVIDIA's catalogue, docs.nvidia.com/deploy/xid-errors.
"""

from __future__ import annotations

XID_WORDS = {
    13: "the graphics engine raised an exception, usually caused by the program",
    31: "a program accessed invalid memory (page fault)",
    38: "the driver's firmware failed",
    43: "a program's work was stopped on the GPU",
    45: "a program's work was removed after an earlier error",
    48: "uncorrectable memory error (double bit)",
    61: "the GPU's microcontroller stopped at a warning",
    62: "the GPU's microcontroller halted",
    63: "a faulty memory row was recorded for remapping",
    64: "a faulty memory row could not be recorded for remapping",
    68: "the video decoder failed",
    69: "the graphics engine received an unknown command",
    74: "an NVLink failed",
    79: "the GPU has fallen off the bus",
    92: "many memory errors were corrected in a short time",
    94: "uncorrectable memory error, contained to one program",
    95: "uncorrectable memory error that was not contained",
    109: "the GPU did not switch to another program in time",
    119: "the GPU's own processor did not answer the driver in time",
    120: "the GPU's own processor failed",
    140: "unrecovered memory error",
    143: "the GPU could not be initialised",
    154: "the driver says that the GPU must be reset or the machine restarted",
}
"""The Xids that owners of GPUs meet, by number."""

PROGRAM_XIDS = (13, 31, 43, 45)
"""Xids that a program's own mistake brings about; any other speaks of the hardware, the driver or the cooling."""


def xid_words(number: int) -> str:
    """ "Xid 79: the GPU has fallen off the bus"; the number alone where it is not a common one."""
    words = XID_WORDS.get(number)
    return f"Xid {number}: {words}" if words else f"Xid {number}"
