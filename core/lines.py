"""Lines made of long texts.

`" ".join(text.split())` of 8 MB of short words takes 150 MB, for a title of 60 characters. These read no more words
than they return.
"""


def first_line(text: str, longest: int) -> str:
    """Return the beginning of a text as one line with single spaces.

    It has `longest` + 2 characters where the text is longer, so that the caller sees whether a word ends there.
    """
    return " ".join(text.split(maxsplit=longest))[: longest + 2]


def last_line(text: str, longest: int) -> str:
    """Return the last `longest` characters of a text as one line with single spaces."""
    return " ".join(text.rsplit(maxsplit=longest))[-longest:]
