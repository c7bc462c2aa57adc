"""What the errors that NVIDIA's driver reports of a GPU mean, in plain words.

The numbers and their causes are those of NVIDIA's catalogue, docs.nvidia.com/deploy/xid-errors.
"""

from __future__ import annotations

XID_WORDS = {
    13: "the graphics engine met an error, mostly a program's own fault",
    31: "a program reached for memory that is not its own (page fault)",
    38: "the driver's firmware failed",
    43: "a program's work was stopped on the GPU",
    45: "a program's work was cleared away after an earlier error",
    48: "memory error that could not be corrected (double bit)",
    61: "the GPU's microcontroller stopped at a warning",
    62: "the GPU's microcontroller halted",
    63: "a faulty piece of memory was noted down to be replaced",
    64: "a faulty piece of memory could not be noted down to be replaced",
    68: "the video decoder failed",
    69: "the graphics engine met an unknown command",
    74: "an NVLink failed",
    79: "the GPU has fallen off the bus",
    92: "many memory errors were corrected in a short time",
    94: "memory error that could not be corrected; it was contained in one program",
    95: "memory error that could not be corrected nor contained",
    109: "the GPU did not change over to another program in time",
    119: "the GPU's own processor did not answer the driver in time",
    120: "the GPU's own processor failed",
    140: "memory error that was not recovered from",
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
