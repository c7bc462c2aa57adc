"""Dataset formats. Each module detects one format in a folder and reads its annotations. Torch-free."""
