"""Recognised splits as samples that a loader can take."""
