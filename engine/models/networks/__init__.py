"""Networks of Footplate's own, after their papers."""
