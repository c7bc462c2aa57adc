"""Callbacks for the training loop."""
