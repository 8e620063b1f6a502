"""A whole installation on one machine. Each service is a process that one can kill, stop or cut off.

`make cluster` starts it, and `make test-cluster` tries which faults it survives. Nothing here is part of the product.
"""
