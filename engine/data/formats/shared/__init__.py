"""Code shared by several dataset formats: search for files and images, shapes, boxes, tables and splits."""
