"""Convert Jupyter notebooks (nbformat 4) to Markdown: their cells and outputs, without pictures."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

JsonObject = dict[str, Any]  # not checked yet

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def notebook_to_markdown(source: str, left_out: Counter[str]) -> Iterator[str]:
    """Yield the pieces of a notebook. Raises `ValueError` if it is not a notebook. Counts `pictures` in `left_out`."""
    try:
        notebook = json.loads(source)
    except RecursionError as error:
        raise ValueError from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError
    metadata = notebook.get("metadata")
    kernel = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    language = str(kernel.get("language", "python")) if isinstance(kernel, dict) else "python"
    return (piece for cell in cells if isinstance(cell, dict) for piece in _cell(cell, language, left_out))


def _cell(cell: JsonObject, language: str, left_out: Counter[str]) -> Iterator[str]:
    text = _joined(cell.get("source")).strip("\n")
    if cell.get("cell_type") == "code":
        yield f"```{language}\n{text}\n```\n\n" if text else ""
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else []:
            if isinstance(output, dict) and (shown := _output(output, left_out).strip("\n")):
                yield f"Output:\n\n```\n{shown}\n```\n\n"
    elif text:
        yield f"{text}\n\n"


def _output(output: JsonObject, left_out: Counter[str]) -> str:
    if output.get("output_type") == "error":
        return f"{output.get('ename')}: {output.get('evalue')}"
    data = output.get("data")
    if not isinstance(data, dict):
        return _COLOURS.sub("", _joined(output.get("text")))
    left_out["pictures"] += any(kind.startswith("image/") for kind in data)
    return _COLOURS.sub("", _joined(data.get("text/markdown") or data.get("text/plain")))


def _joined(text: object) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else text if isinstance(text, str) else ""
