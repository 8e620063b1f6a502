"""Make one line of the beginning or end of a long text.

For a title of 60 characters, `" ".join(text.split())` of 8 MB of short words takes 150 MB. These functions split off
only as many words as the line can have.
"""


def first_line(text: str, longest: int) -> str:
    """Return the beginning of a text as one line with single spaces.

    A longer text gives `longest` + 2 characters, so that the caller can see whether a word ends at `longest`.
    """
    return " ".join(text.split(maxsplit=longest))[: longest + 2]


def last_line(text: str, longest: int) -> str:
    """Return the last `longest` characters of a text as one line with single spaces."""
    return " ".join(text.rsplit(maxsplit=longest))[-longest:]
