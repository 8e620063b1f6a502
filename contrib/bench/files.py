"""Measure the reading of PDFs: the speed compared with PDFium alone, and the time from an upload to its text."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pypdfium2

from readers.api import extract
from readers.tests import samples
from tests.product import WAIT, Caller, until

RUNS = 5
PAGES = 100
SPEED = 1 / 3  # minimum, as a share of the speed of PDFium alone
READABLE, SEARCHABLE = 1.0, 5.0  # limits in seconds


def _pdfium(path: Path) -> None:
    document = pypdfium2.PdfDocument(path)
    for page in document:
        page.get_textpage().get_text_range()
    document.close()


def _seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def extraction(pages: int) -> list[dict[str, Any]]:
    """Measure the pages per second, including the start of the reading process."""
    with tempfile.NamedTemporaryFile() as sample:
        path = Path(sample.name)
        path.write_bytes(samples.pdf([samples.page_of_text(number) for number in range(pages)]))
        pdfium_seconds, our_seconds = _seconds(lambda: _pdfium(path)), _seconds(lambda: extract(path, "bench.pdf"))
    name = f"extraction of a PDF of {pages} pages; peer: PDFium alone, at least {SPEED:.2f}"
    return [
        {
            "name": name,
            "value": round(pages / our_seconds),
            "unit": "pages/s",
            "peer": round(pages / pdfium_seconds),
            "ratio": round(pdfium_seconds / our_seconds, 2),
        }
    ]


def until_readable(caller: Caller) -> list[dict[str, Any]]:
    """Measure the seconds from the start of an upload over HTTP until the file is readable, and searchable."""
    readable, searchable = [], []
    for run in range(RUNS):
        content = samples.pdf([samples.page_of_text(run * PAGES + number) for number in range(PAGES)])
        began = time.perf_counter()
        response = caller.http.post("files/", files={"file": (f"bench-{run}.pdf", content)}, timeout=WAIT)
        file = response.raise_for_status().json()["id"]
        until(lambda file=file: caller.get(f"files/{file}/")["status"] == "ready", "the file is readable")
        readable.append(time.perf_counter() - began)
        until(lambda file=file: caller.get(f"files/{file}/")["searchable"], "the file is searchable")
        searchable.append(time.perf_counter() - began)
    return [
        {
            "name": f"from the upload of {PAGES} pages until {what}, median",
            "value": round(statistics.median(times), 2),
            "unit": "s",
            "limit": limit,
            "ratio": round(statistics.median(times) / limit, 2),
        }
        for what, times, limit in (("readable", readable, READABLE), ("searchable", searchable, SEARCHABLE))
    ]


def rows(caller: Caller) -> list[dict[str, Any]]:
    return extraction(PAGES) + extraction(10 * PAGES) + until_readable(caller)
