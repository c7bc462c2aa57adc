"""The models that Footplate offers, and what they start from."""
