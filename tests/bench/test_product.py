import os

from tests.bench import product as bench
from tests.conftest import Person
from tests.product import Product


def test_bench(product: Product, person: Person) -> None:
    measured = bench.rows(product, person.caller)
    for r in measured:
        print(r)
