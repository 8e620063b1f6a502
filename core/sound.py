"""JSON values without characters that cannot be stored or sent."""

import re
from typing import Any

# Characters that JSON has escapes for and that can be neither stored nor sent: NUL, which PostgreSQL refuses, and
# surrogates, which may be unpaired.
_UNSOUND = re.compile("[\x00\ud800-\udfff]")


def sound(value: Any) -> Any:
    """Return a JSON value with a replacement character for each that cannot be stored or sent."""
    if isinstance(value, str):
        return _UNSOUND.sub("\ufffd", value)
    if isinstance(value, list):
        return [sound(item) for item in value]
    if isinstance(value, dict):
        return {sound(key): sound(item) for key, item in value.items()}
    return value
