"""What stands beside the text of Office files: the numbers of charts (DrawingML, ECMA-376 part 1, section 21.2), as
tables, and remarks."""

from typing import Any

from readers.text.tables import Cell, markdown

Element = Any  # lxml's own class for elements is private

_MOST = 500  # points of a chart that are written


def chart(tree: Element) -> str:
    """Its kind and title, then a row for each category and a column for each series."""
    head = f"{_kind(tree)}: {_title(tree)}".rstrip(" :")
    series = list(tree.iter("{*}ser"))
    columns = [_points(each, "val", "yVal") for each in series]
    names = [next(iter(_points(each, "tx").values()), f"Series {number}") for number, each in enumerate(series, 1)]
    categories = next((found for each in series if (found := _points(each, "cat", "xVal"))), {})
    places = sorted({place for column in (categories, *columns) for place in column})
    rows = [
        ["", *names],
        *([categories.get(at, ""), *(column.get(at, "") for column in columns)] for at in places[:_MOST]),
    ]
    return f"{head}\n\n{markdown([Cell(text) for text in row] for row in rows)}" if series else f"{head}\n"


def remark(text: str, by: str = "", when: str = "") -> str:
    """A line of a list of comments; `when` is in the notation of XML."""
    said = ", ".join(filter(None, (by, when[:16].replace("T", " "))))
    return f"- {said}: {text}" if said else f"- {text}"


def _kind(tree: Element) -> str:
    """“Bar chart” of `barChart`, “Pie chart” of `pie3DChart`."""
    plot = tree.find(".//{*}plotArea")
    names = [] if plot is None else [str(each.tag).rpartition("}")[2] for each in plot]
    kinds = (name.removesuffix("Chart").removesuffix("3D") for name in names if name.endswith("Chart"))
    return next((f"{kind.capitalize()} chart" for kind in kinds), "Chart")


def _title(tree: Element) -> str:
    return " ".join("".join(text.text or "" for text in tree.iterfind(".//{*}chart/{*}title//{*}t")).split())


def _points(series: Element, *parts: str) -> dict[int, str]:
    """The cached values of a part of a series by their places."""
    for part in parts:
        found = series.find(f"{{*}}{part}")
        if found is not None:
            points = {
                int(each.get("idx", "0")): (each.findtext("{*}v") or "").strip()
                for each in found.iter("{*}pt")
                if each.get("idx", "0").isdigit()
            }
            return points or ({0: value} if (value := (found.findtext("{*}v") or "").strip()) else {})
    return {}
