"""List of past and active runs, their queue and details, and actions on them."""
