"""Read the drawings of a page: straight lines, which rule its tables, and a picture that covers it."""

import ctypes
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pypdfium2
from pypdfium2 import raw

from readers.text.grids import Box, Rule

Point = tuple[float, float]

_THIN = 3.0  # points; a lower or narrower shape is a line
_STRAIGHT = 0.5  # points by which a straight line may deviate
_MOST_OBJECTS = 4_000  # of a page; one with more is a drawing
_MOST_SEGMENTS = 400  # of one path
_COVERED = 0.7  # of the area of a page
_EDGES = 5  # segments of a rectangle


def rules(page: pypdfium2.PdfPage) -> tuple[list[Rule], list[Rule]]:
    """Return the horizontal and the vertical lines, in points of the page."""
    level: list[Rule] = []
    upright: list[Rule] = []
    count = raw.FPDFPage_CountObjects(page)
    for number in range(count if count <= _MOST_OBJECTS else 0):
        item = raw.FPDFPage_GetObject(page, number)
        if raw.FPDFPageObj_GetType(item) == raw.FPDF_PAGEOBJ_PATH:
            for start, end in _strokes(item):
                low, high = sorted((start, end))
                if abs(start[1] - end[1]) <= _STRAIGHT:
                    level.append(Rule(start[1], low[0], high[0]))
                elif abs(start[0] - end[0]) <= _STRAIGHT:
                    upright.append(Rule(start[0], min(start[1], end[1]), max(start[1], end[1])))
    return level, upright


def is_scan(page: pypdfium2.PdfPage) -> bool:
    """Return whether one picture covers the page, so that another program may have recognised its text."""
    width, height = page.get_size()
    for number in range(min(raw.FPDFPage_CountObjects(page), _MOST_OBJECTS)):
        item = raw.FPDFPage_GetObject(page, number)
        if raw.FPDFPageObj_GetType(item) == raw.FPDF_PAGEOBJ_IMAGE:
            box = _bounds(item)
            if (box.right - box.left) * (box.top - box.bottom) >= _COVERED * width * height:
                return True
    return False


def _strokes(path: Any) -> Iterator[tuple[Point, Point]]:
    box = _bounds(path)
    (across, up) = box.middle
    if box.top - box.bottom <= _THIN:
        yield (box.left, up), (box.right, up)
    elif box.right - box.left <= _THIN:
        yield (across, box.bottom), (across, box.top)
    else:
        yield from _segments(path, min(raw.FPDFPath_CountSegments(path), _MOST_SEGMENTS))


def _bounds(item: Any) -> Box:
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    raw.FPDFPageObj_GetBounds(item, left, bottom, right, top)
    return Box(left.value, bottom.value, right.value, top.value)


def _segments(path: Any, count: int) -> Iterator[tuple[Point, Point]]:
    """Yield the straight parts of a path, with the one that closes it."""
    matrix = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(path, matrix)
    x = ctypes.c_float()
    y = ctypes.c_float()
    line: list[Point] = []
    for number in range(count + 1):
        segment = raw.FPDFPath_GetPathSegment(path, number) if number < count else None
        kind = raw.FPDFPathSegment_GetType(segment) if segment else raw.FPDF_SEGMENT_MOVETO
        if kind == raw.FPDF_SEGMENT_MOVETO:
            yield from pairwise(line)
            line = []
        if segment:
            raw.FPDFPathSegment_GetPoint(segment, x, y)
            place = (
                matrix.a * x.value + matrix.c * y.value + matrix.e,
                matrix.b * x.value + matrix.d * y.value + matrix.f,
            )
            line = [place] if kind == raw.FPDF_SEGMENT_BEZIERTO else [*line, place]
            if raw.FPDFPathSegment_GetClose(segment) and line:
                line.append(line[0])
