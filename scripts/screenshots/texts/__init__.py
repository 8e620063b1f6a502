"""Texts of the law office: its files, questions, and the answers that the scripted model gives to them."""

import re
from pathlib import Path


def text_of(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text().strip()


def sections(name: str) -> list[tuple[str, str]]:
    """Return the heading and the text of each section of a file."""
    return re.findall(r"^# (.+)\n\n((?:(?!# ).*\n?)*)", text_of(name) + "\n", re.MULTILINE)
