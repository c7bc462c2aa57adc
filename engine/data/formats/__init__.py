"""The kinds of dataset folders: how each is recognised, and what it says of its splits. Torch-free."""
