"""Explanations of Xid errors, which NVIDIA's driver reports for a GPU.

Source of the numbers and causes: NVIDIA's catalog, docs.nvidia.com/deploy/xid-errors.
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
    119: "the GPU's system processor did not answer the driver in time",
    120: "the GPU's system processor failed",
    140: "unrecovered memory error",
    143: "the GPU could not be initialized",
    154: "the driver says that the GPU must be reset or the machine restarted",
}
"""Common Xids by number."""

PROGRAM_XIDS = (13, 31, 43, 45)
"""Xids that are usually caused by a program's bug; all others indicate hardware, driver or cooling."""


def xid_words(number: int) -> str:
    """Return the explanation of an Xid, such as "Xid 79: the GPU has fallen off the bus"; just the number if it is rare."""
    words = XID_WORDS.get(number)
    return f"Xid {number}: {words}" if words else f"Xid {number}"
