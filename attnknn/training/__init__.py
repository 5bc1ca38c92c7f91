"""What any training needs; knows nothing of neighbors."""
