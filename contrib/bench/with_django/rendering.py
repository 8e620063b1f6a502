"""Measure the rendering of the longest texts of hostile Markdown, by kind. Prints rows as JSON."""

import json
import time

import django

django.setup()

from chat.rendering.markdown import MAX_CHARACTERS, render
from chat.rendering.references import Source, Sources

LIMIT = 2.0  # seconds of CPU
SOURCES = Sources({number: Source(number, "contract", "/files/x/") for number in range(1, 7)})
BLANK_LINES = "\n" * 19_000
HOSTILE = {
    "task lists": "- [ ] a\n",
    "tables of one cell": "a|b\n-|-\n",
    "tables of three cells": "|a|b|c|\n|-|-|-|\n|1|2|3|\n",
    "wide tables": f"|{'a|' * 1_000}\n|{'-|' * 1_000}\n" + f"|{'a|' * 1_000}\n" * 200,
    "citations of six numbers": "[1,2,3,4,5,6]",
    "links": "<https://x.y>",
    "opened emphasis and links": "[*",
    "opened images": "![",
    "quotes in quotes": "> > a\n",
    "formulas": "$$\na\n$$\n",
    "paragraphs": "a\n\n",
    "blank lines of Java": f"```java\n{BLANK_LINES}```\n",
    "blank lines of C": f"```c\n{BLANK_LINES}```\n",
    "lines of C#": "```csharp\n" + "a\n" * 9_000 + "```\n",
}


def main() -> None:
    rows = []
    for name, piece in HOSTILE.items():
        text = (piece * (MAX_CHARACTERS // len(piece) + 1))[:MAX_CHARACTERS]
        began = time.process_time()
        render(text, SOURCES)
        took = time.process_time() - began
        rows.append(
            {"name": name, "value": round(took, 2), "unit": "s CPU", "limit": LIMIT, "ratio": round(took / LIMIT, 2)}
        )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
