"""Every address of the product, taken from the URLconf itself, filled with the rows of one person."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.regex_helper import normalize

PARAMETER = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True)
class Address:
    """An address of the URLconf. `parameters` are the names of its parameters, such as pk."""

    url: str
    parameters: tuple[str, ...]
    view: Any

    @property
    def admin(self) -> bool:
        return self.url.startswith("/admin/")


def addresses(values: Mapping[str, str]) -> list[Address]:
    """Return all addresses with these values of parameters, by "segment/parameter" or "parameter".

    The segment is the part of the path before the parameter. Raises LookupError for a parameter without a value.
    """
    return [
        Address("/" + _filled(template, values), tuple(PARAMETER.findall(template)), view)
        for template, view in _templates()
    ]


@cache
def _templates() -> list[tuple[str, Any]]:
    routes = _routes(get_resolver().url_patterns, "")
    return [(template, view) for regex, view in routes for template, _ in normalize(regex)]


def _routes(patterns: list[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for entry in patterns:
        regex = prefix + entry.pattern.regex.pattern.removeprefix("^")
        if isinstance(entry, URLResolver):
            yield from _routes(entry.url_patterns, regex)
        elif isinstance(entry, URLPattern):
            yield regex, entry.callback


def _filled(template: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        segment = template[: match.start()].rstrip("/").rpartition("/")[2]
        for key in (f"{segment}/{match[1]}", match[1]):
            if key in values:
                return values[key]
        raise LookupError(
            f"The address {template} takes “{match[1]}” after “{segment}”, which the tests of access do not know. "
            "Give them a row of another person for it."
        )

    return PARAMETER.sub(value, template)
