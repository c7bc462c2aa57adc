"""Parts that several dataset formats share: search for files and images, shapes, boxes, tables and splits."""
