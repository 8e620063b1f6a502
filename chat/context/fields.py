"""Reading a JSON object field by field; everything that is not as it should be is a `BadRequest`."""

import json
import re
from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import Any, NoReturn

from llm.errors import ProductError

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# More decimals than any share needs; without a bound a few bytes (1e-999999999) would be a number of gigabytes.
_DECIMALS = 100


class BadRequest(ProductError):
    def __init__(self, detail: str) -> None:
        super().__init__("bad_request", detail)


def parse_object(line: str | bytes) -> "Fields":
    """The JSON object of one line, with exact decimals. Raises `BadRequest`."""
    try:
        text = line if isinstance(line, str) else line.decode()
        value = json.loads(text, parse_float=Decimal, parse_constant=_reject_constant)
        if _ESCAPED_SURROGATE.search(text):
            # Half of a surrogate pair is not a character and could not be sent.
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeError as error:
        raise BadRequest("The request is not valid UTF-8 text.") from error
    except RecursionError as error:
        raise BadRequest("The request is nested too deeply.") from error
    except ValueError as error:
        raise BadRequest(f"The request is not valid JSON: {error}.") from error
    return Fields(value, "")


class Fields:
    """An object of a request. `path` tells a person where in the request it is, with a full stop at its end."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise BadRequest(f"{path.rstrip('.') or 'The request'} must be a JSON object.")
        self._values: dict[str, Any] = value
        self._path = path

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def has(self, name: str) -> bool:
        """Whether there is such a field and it is not `null`."""
        return self._values.get(name) is not None

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number, not negative. Without `default` it must be there."""
        if name not in self._values and default is not None:
            return default
        return self._whole(name, self._values.get(name))

    def optional_number(self, name: str) -> int | None:
        """A whole number, or None if there is no such field; `null` is not a number."""
        return self._whole(name, self._values[name]) if name in self._values else None

    def known_number(self, name: str) -> int | None:
        """A whole number or `null`, which stands for an unknown one."""
        return self._whole(name, self._values[name]) if self.has(name) else None

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers, which must be there."""
        if not self.has(name):
            self.refuse(name, "is missing")
        return [self._whole(name, value) for value in self._list(name)]

    def known_numbers(self, name: str) -> list[int | None]:
        """A list of whole numbers and `null`s, which stand for unknown ones; empty if there is no such field."""
        return [None if value is None else self._whole(name, value) for value in self._list(name)]

    def share(self, name: str, default: Decimal) -> Decimal:
        """A decimal that is not negative."""
        value = self._values.get(name, default)
        if isinstance(value, int) and not isinstance(value, bool):
            value = Decimal(value)
        if not isinstance(value, Decimal) or value < 0 or not abs(int(value.as_tuple().exponent)) <= _DECIMALS:
            self.refuse(name, "must be a decimal number that is not negative")
        return value

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, "must be a text")
        return value

    def name(self, name: str) -> str:
        """A text that must be there and not be empty."""
        value = self.text(name)
        if not value:
            self.refuse(name, "is missing")
        return value

    def choice(self, name: str, options: Collection[str], default: str | None = None) -> str:
        value = self._values.get(name, default)
        if not isinstance(value, str) or value not in options:
            self.refuse(name, f"must be one of {', '.join(options)}")
        return value

    def flag(self, name: str) -> bool:
        value = self._values.get(name, False)
        if not isinstance(value, bool):
            self.refuse(name, "must be true or false")
        return value

    def value(self, name: str, default: object) -> object:
        """The JSON value as it is."""
        value = self._values.get(name)
        return default if value is None else value

    def part(self, name: str) -> "Fields | None":
        return Fields(self._values[name], f"{self._path}{name}.") if self.has(name) else None

    def objects(self, name: str) -> Iterator["Fields"]:
        """The objects of a list; none if the list is missing."""
        for position, value in enumerate(self._list(name)):
            yield Fields(value, f"{self._path}{name}[{position}].")

    def refuse(self, name: str, why: str) -> NoReturn:
        raise BadRequest(f"“{self._path}{name}” {why}.")

    def _list(self, name: str) -> list[Any]:
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(name, "must be a list")
        return value

    def _whole(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.refuse(name, "must be a whole number that is not negative")
        return value


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
