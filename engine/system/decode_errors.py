"""Exceptions from decoding damaged or malicious bytes."""

from __future__ import annotations

import msgspec

NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All exceptions of msgspec's decoders. Invalid UTF-8 raises Python's own exception."""
