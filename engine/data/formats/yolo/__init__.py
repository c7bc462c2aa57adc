"""YOLO format: a definition of classes and splits, and one text file of objects per image."""

from engine.data.formats.yolo.format import FORMAT

__all__ = ["FORMAT"]
