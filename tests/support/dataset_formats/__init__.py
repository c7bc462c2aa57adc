"""Writers of every dataset format that Footplate reads, from one ground truth."""
