"""Find forbidden text in a product's log: secrets, texts of people and models, and their searches."""

import re
from collections.abc import Iterator

from tests.product import Product

SECRETS = re.compile(
    r"\b(?:gh|whsec)_[\w+/=%-]{8,}"  # tokens, and what webhooks are signed with
    r"|/s/[\w%-]{16,}"  # shares
    r"|[\w/]\?[\w%-]+="  # what stands behind the question mark of an address
    r"|(?i:cookie|sessionid|csrftoken|authorization)['\": =]+[\w.+/-]{8,}"
    r"|secret-of-the-scripted-provider"
    r"|correct horse battery"  # the password of everybody in tests
    r"|script: ?\{"  # in every question to the scripted model
)


def lines(product: Product) -> Iterator[str]:
    """Yield all log lines of the product's processes, ended ones included."""
    for log in product.directory.glob("*.log"):
        with log.open(errors="replace") as written:
            yield from written


def spilled(product: Product, *marks: str) -> list[str]:
    """Return the lines that contain a secret of any kind, or one of the marks."""
    return [line for line in lines(product) if SECRETS.search(line) or any(mark in line for mark in marks)]
