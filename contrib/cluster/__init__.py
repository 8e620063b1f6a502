"""A company on one machine: every service of it as a process that one can end, stop and cut off.

`make cluster` starts it and `make test-cluster` tries what it survives. Nothing here is part of the product.
"""
