"""Bodies of requests. Django REST framework loads its parsers before its views can be imported."""

from typing import Any

from rest_framework import parsers
from rest_framework.exceptions import ParseError


class JSONParser(parsers.JSONParser):
    """As REST framework's, for which JSON nested deeper than Python's parser goes is a failure (500)."""

    def parse(self, *given: Any, **more: Any) -> Any:
        try:
            return super().parse(*given, **more)
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply. Send it flatter.") from error
