"""PostgreSQL, Redis and a small model from wheels, and the supervisor that runs them with the product.

Nothing here needs Django, so settings may import `paths`.
"""
