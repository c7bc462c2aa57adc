"""From the bytes of files to arrays. All but `images` is torch-free."""
