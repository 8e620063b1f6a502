"""Full-text search over the titles and messages of one person."""
