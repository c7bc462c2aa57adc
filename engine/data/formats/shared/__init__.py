"""Code shared by several dataset formats: searching for files and images, shapes, boxes, tables and splits."""
