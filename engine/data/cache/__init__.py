"""Decoded images, kept in memory or on disk."""
