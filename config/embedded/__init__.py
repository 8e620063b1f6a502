"""PostgreSQL, Redis and a small model from wheels, and the supervisor that runs them with the product.

No module here but `product` needs Django, so settings may import `paths`.
"""
