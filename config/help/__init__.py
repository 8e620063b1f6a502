"""The guide at `/help/`: the product renders the Markdown of docs/ itself, and searches it.

docs/decisions/0051-the-guide-is-rendered-by-the-product.md says why no static site is built.
"""
