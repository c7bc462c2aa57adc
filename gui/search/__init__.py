"""Searches over settings: asked for, followed as they go, and what came of them."""
