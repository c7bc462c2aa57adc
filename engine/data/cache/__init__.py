"""Cache of decoded images in memory or on disk."""
