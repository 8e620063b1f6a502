"""The guide at `/help/`: the Markdown of docs/, rendered by the product itself, with a search and without a build.

docs/decisions/0051-the-guide-is-rendered-by-the-product.md says why it is no site that is built beforehand.
"""
