"""Files of the law office, made from the texts beside this module."""

from datetime import datetime, timedelta
from io import BytesIO
from math import exp
from typing import NamedTuple

from docx import Document
from markdown_it import MarkdownIt
from openpyxl import Workbook
from playwright.sync_api import Browser

from scripts.screenshots.texts import text_of

PARSER = MarkdownIt("commonmark").enable("table")
FAILURE = datetime(2026, 10, 24, 2, 10)
REPAIRED = datetime(2026, 10, 27, 21)
HOURS = 120  # of the record, from midnight before the failure
# Clauses of a contract and an opinion as a firm would set them.
STYLE = """@page { size: A4; margin: 24mm 22mm } body { font: 10.5pt/1.45 "Liberation Serif", "DejaVu Serif", serif }
h1 { font-size: 16pt } h2 { font-size: 13pt; margin-top: 1.4em } h3 { font-size: 11pt; margin-bottom: .2em }
table { border-collapse: collapse; font-size: 9pt } td, th { border: 1px solid #888; padding: 1px 8px }"""


class HourlyReading(NamedTuple):
    """Degrees Celsius in zones 3 and 4, by the tenant's sensors and by the controls."""

    time: str
    third: float
    third_controls: float
    fourth: float
    fourth_controls: float


def temperatures() -> list[HourlyReading]:
    """Return the readings of each hour, from the midnight before the failure on."""
    rows = []
    for hour in range(HOURS):
        moment = FAILURE.replace(hour=0, minute=0) + timedelta(hours=hour)
        since, after = (moment - FAILURE) / timedelta(hours=1), (moment - REPAIRED) / timedelta(hours=1)
        warmth = 0.0 if since < 0 else 17.0 * (1 - exp(-since / 24)) if after < 0 else 16.4 * exp(-after / 3)
        third, fourth = -22.6 + warmth, -22.9 + warmth * 0.5
        values = [round(value, 1) for value in (third, third - 0.3, fourth, fourth - 0.9)]
        rows.append(HourlyReading(f"{moment:%d %b %H:%M}", *values))
    return rows


def opinion() -> str:
    head = "| time | zone 3, tenant | zone 3, controls | zone 4, tenant | zone 4, controls |\n|---|---|---|---|---|\n"
    rows = "\n".join("| " + " | ".join(map(str, row)) + " |" for row in temperatures())
    return f"{text_of('opinion')}\nDegrees Celsius, at the full hour.\n\n{head}{rows}\n"


def pdf(browser: Browser, text: str) -> bytes:
    """Print Markdown as a browser does."""
    page = browser.new_page()
    page.set_content(f"<style>{STYLE}</style>{PARSER.render(text)}")
    content = page.pdf(prefer_css_page_size=True)
    page.close()
    return content


def docx(text: str) -> bytes:
    document = Document()
    for block in text.strip().split("\n\n"):
        if block.startswith("#"):
            marks, _, heading = block.partition(" ")
            document.add_heading(heading, len(marks) - 1)
        else:
            for line in block.splitlines():
                document.add_paragraph(line.removeprefix("* "), "List Bullet" if line.startswith("* ") else None)
    content = BytesIO()
    document.save(content)
    return content.getvalue()


def xlsx(rows: list[HourlyReading]) -> bytes:
    workbook = Workbook()
    sheet = workbook.active
    assert sheet is not None
    sheet.title = "Zones 3 and 4"
    sheet.append(["Time", "Zone 3", "Zone 3 (controls)", "Zone 4", "Zone 4 (controls)"])
    for row in rows:
        sheet.append(list(row))
    content = BytesIO()
    workbook.save(content)
    return content.getvalue()


def documents(browser: Browser) -> dict[str, bytes]:
    """Return the files of the case by name."""
    return {
        "Lease Nordhafen 14.pdf": pdf(browser, text_of("lease")),
        "Minutes 12 November.docx": docx(text_of("minutes")),
        "Expert opinion Nyberg.pdf": pdf(browser, opinion()),
        "Claim letter, draft.docx": docx(text_of("claim-letter")),
        "Temperatures October.xlsx": xlsx(temperatures()),
    }
