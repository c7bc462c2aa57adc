"""Drawings of an evaluation's samples."""
