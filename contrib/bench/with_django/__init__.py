"""Measurements of parts of the product. Each module runs in a process of its own, sets Django up, and prints JSON."""
