"""PostgreSQL, Redis and a small model from wheels, and the supervisor that runs them together with the product.

Only the module `product` needs Django, so settings may import `paths`.
"""
