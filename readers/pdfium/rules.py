"""Find the straight lines that rule the tables of a PDF page, and detect scanned pages."""

import ctypes
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pypdfium2
from pypdfium2 import raw

from readers.text.grids import Box, Rule

Point = tuple[float, float]

_MAX_LINE_WIDTH = 3.0  # points; a shape of at most this height or width is a line
_LINE_TOLERANCE = 0.5  # points by which a straight line may deviate
_MAX_OBJECTS = 4_000  # objects on a page; a page with more is a drawing
_MAX_SEGMENTS = 400  # segments in one path
_SCAN_SHARE = 0.7  # share of the page's area


def rules(page: pypdfium2.PdfPage) -> tuple[list[Rule], list[Rule]]:
    """Return the horizontal and the vertical lines of a page, in points."""
    horizontal: list[Rule] = []
    vertical: list[Rule] = []
    count = raw.FPDFPage_CountObjects(page)
    for number in range(count if count <= _MAX_OBJECTS else 0):
        item = raw.FPDFPage_GetObject(page, number)
        if raw.FPDFPageObj_GetType(item) == raw.FPDF_PAGEOBJ_PATH:
            for start, end in _strokes(item):
                low, high = sorted((start, end))
                if abs(start[1] - end[1]) <= _LINE_TOLERANCE:
                    horizontal.append(Rule(start[1], low[0], high[0]))
                elif abs(start[0] - end[0]) <= _LINE_TOLERANCE:
                    vertical.append(Rule(start[0], min(start[1], end[1]), max(start[1], end[1])))
    return horizontal, vertical


def is_scan(page: pypdfium2.PdfPage) -> bool:
    """Return whether one picture covers the page. The text of such a page may come from another OCR program."""
    width, height = page.get_size()
    for number in range(min(raw.FPDFPage_CountObjects(page), _MAX_OBJECTS)):
        item = raw.FPDFPage_GetObject(page, number)
        if raw.FPDFPageObj_GetType(item) == raw.FPDF_PAGEOBJ_IMAGE:
            box = _bounds(item)
            if (box.right - box.left) * (box.top - box.bottom) >= _SCAN_SHARE * width * height:
                return True
    return False


def _strokes(path: Any) -> Iterator[tuple[Point, Point]]:
    box = _bounds(path)
    (center_x, center_y) = box.middle
    if box.top - box.bottom <= _MAX_LINE_WIDTH:
        yield (box.left, center_y), (box.right, center_y)
    elif box.right - box.left <= _MAX_LINE_WIDTH:
        yield (center_x, box.bottom), (center_x, box.top)
    else:
        yield from _segments(path, min(raw.FPDFPath_CountSegments(path), _MAX_SEGMENTS))


def _bounds(item: Any) -> Box:
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    raw.FPDFPageObj_GetBounds(item, left, bottom, right, top)
    return Box(left.value, bottom.value, right.value, top.value)


def _segments(path: Any, count: int) -> Iterator[tuple[Point, Point]]:
    """Yield the straight segments of a path, including the closing one."""
    matrix = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(path, matrix)
    x = ctypes.c_float()
    y = ctypes.c_float()
    points: list[Point] = []
    for number in range(count + 1):
        segment = raw.FPDFPath_GetPathSegment(path, number) if number < count else None
        kind = raw.FPDFPathSegment_GetType(segment) if segment else raw.FPDF_SEGMENT_MOVETO
        if kind == raw.FPDF_SEGMENT_MOVETO:
            yield from pairwise(points)
            points = []
        if segment:
            raw.FPDFPathSegment_GetPoint(segment, x, y)
            point = (
                matrix.a * x.value + matrix.c * y.value + matrix.e,
                matrix.b * x.value + matrix.d * y.value + matrix.f,
            )
            points = [point] if kind == raw.FPDF_SEGMENT_BEZIERTO else [*points, point]
            if raw.FPDFPathSegment_GetClose(segment) and points:
                points.append(points[0])
