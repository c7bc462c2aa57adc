"""Errors when damaged or hostile bytes are decoded."""

from __future__ import annotations

import msgspec

NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All errors that msgspec's decoders raise; for invalid UTF-8, it is Python's error."""
