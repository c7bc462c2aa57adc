"""Qt window of Footplate; it never imports torch."""
