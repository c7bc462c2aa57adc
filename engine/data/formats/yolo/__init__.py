"""YOLO's format: a definition of classes and splits, and a text file of objects for each image."""

from engine.data.formats.yolo.format import FORMAT

__all__ = ["FORMAT"]
