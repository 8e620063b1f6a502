"""Replace characters in JSON values that cannot be stored or sent."""

import re
from typing import Any

# Characters that JSON can escape but that cannot be stored or sent: NUL, which PostgreSQL refuses, and surrogates,
# which UTF-8 cannot encode.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def replace_unstorable(value: Any) -> Any:
    """Return the JSON value with a replacement character in place of each that cannot be stored or sent."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, list):
        return [replace_unstorable(item) for item in value]
    if isinstance(value, dict):
        return {replace_unstorable(key): replace_unstorable(item) for key, item in value.items()}
    return value
