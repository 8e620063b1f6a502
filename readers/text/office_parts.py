"""Write charts of Office files as tables (DrawingML, ECMA-376 part 1, section 21.2), and comments as lines."""

from typing import Any

from readers.text.tables import Cell, markdown

Element = Any  # lxml's own class for elements is private

_MAX_POINTS = 500  # points per chart


def chart(tree: Element) -> str:
    """Return the kind and title of a chart, then a row for each category and a column for each series."""
    head = f"{_kind(tree)}: {_title(tree)}".rstrip(" :")
    series = list(tree.iter("{*}ser"))
    columns = [_points(each, "val", "yVal") for each in series]
    names = [next(iter(_points(each, "tx").values()), f"Series {number}") for number, each in enumerate(series, 1)]
    categories = next((points for each in series if (points := _points(each, "cat", "xVal"))), {})
    places = sorted({place for column in (categories, *columns) for place in column})
    rows = [
        ["", *names],
        *([categories.get(at, ""), *(column.get(at, "") for column in columns)] for at in places[:_MAX_POINTS]),
    ]
    return f"{head}\n\n{markdown([Cell(text) for text in row] for row in rows)}" if series else f"{head}\n"


def comment_item(text: str, by: str = "", when: str = "") -> str:
    """Return a comment as a list item. `when`: an XML date and time."""
    heading = ", ".join(filter(None, (by, when[:16].replace("T", " "))))
    return f"- {heading}: {text}" if heading else f"- {text}"


def _kind(tree: Element) -> str:
    """Return the kind of a chart: “Bar chart” for `barChart`, “Pie chart” for `pie3DChart`."""
    plot = tree.find(".//{*}plotArea")
    names = [] if plot is None else [str(each.tag).rpartition("}")[2] for each in plot]
    kinds = (name.removesuffix("Chart").removesuffix("3D") for name in names if name.endswith("Chart"))
    return next((f"{kind.capitalize()} chart" for kind in kinds), "Chart")


def _title(tree: Element) -> str:
    return " ".join("".join(text.text or "" for text in tree.iterfind(".//{*}chart/{*}title//{*}t")).split())


def _points(series: Element, *parts: str) -> dict[int, str]:
    """Return the cached values of the first existing part of a series, by index."""
    for part in parts:
        element = series.find(f"{{*}}{part}")
        if element is not None:
            points = {
                int(each.get("idx", "0")): (each.findtext("{*}v") or "").strip()
                for each in element.iter("{*}pt")
                if each.get("idx", "0").isdigit()
            }
            return points or ({0: value} if (value := (element.findtext("{*}v") or "").strip()) else {})
    return {}
