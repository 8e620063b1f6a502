"""From bytes to text, in a confined process. Knows neither Django nor the product; see README.md.

The product imports `readers.api` and `readers.confinement`. This module stays empty: it is loaded by each process that
reads a file, which would start in 90 ms instead of 67 ms with all of `readers.api`.
"""
