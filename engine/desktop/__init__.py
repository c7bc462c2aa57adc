"""Integration of Footplate into the Linux desktop."""
