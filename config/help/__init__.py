"""The guide at `/help/`: the Markdown of docs/, rendered by the product itself, with a search and without a build.

Why not a site built beforehand: docs/decisions/0051-the-guide-is-rendered-by-the-product.md.
"""
