"""Figures of parts of the product: each module is run as a process of its own that sets Django up, and prints JSON."""
