"""Headings, lists, tables, notes and formulas of documents come out as Markdown."""

import io
import zipfile
from typing import Any

import docx
import openpyxl
import pptx
import pptx.chart.data
import pytest
from lxml import etree
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from readers.tests import samples
from readers.tests.reading import Read, pages, read
from readers.tests.samples import paragraph
from readers.text.formulas import omml_to_latex
from readers.text.numbering import ListLevel, Numbering, format_count
from readers.text.tables import Cell, markdown

__all__ = ["read"]

charts: Any = pptx.chart.data  # which has no types

CONTRACT = """<w:abstractNum w:abstractNumId="0">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1"/></w:lvl>
<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1.%2"/></w:lvl>
<w:lvl w:ilvl="2"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="(%3)"/></w:lvl>
</w:abstractNum><w:abstractNum w:abstractNumId="1">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="bullet"/><w:lvlText w:val="o"/></w:lvl>
</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>
<w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>"""


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def test_the_numbers_that_word_puts_before_clauses_are_in_the_text(read: Read) -> None:
    body = (
        paragraph("Terms", "Heading1", (1, 0)),
        paragraph("Delivery", "Heading1", (1, 0)),
        paragraph("The seller delivers.", number=(1, 1)),
        paragraph("The buyer pays", number=(1, 1)),
        paragraph("in cash or", number=(1, 2)),
        paragraph("by transfer.", number=(1, 2)),
        paragraph("An apple", number=(2, 0)),
        paragraph("Law", "Heading1", (1, 0)),
        paragraph("Any court.", number=(1, 1)),
    )
    assert lines(read(samples.word_of("".join(body), numbering=CONTRACT)).text) == [
        *("# 1 Terms", "# 2 Delivery", "  2.1 The seller delivers.", "  2.2 The buyer pays"),
        *("    (a) in cash or", "    (b) by transfer.", "- An apple", "# 3 Law", "  3.1 Any court."),
    ]


def test_a_word_document_keeps_titles_quotations_and_merged_cells(read: Read) -> None:
    document: Any = docx.Document()
    document.add_heading("The lake", 0)
    document.add_heading("Depth", 2)
    document.add_paragraph("Who has no name drowns.", style="Quote")
    table = document.add_table(3, 3)
    for at, text in enumerate(("Year", "Low", "High", "2025", "1", "2", "2026", "3", "4")):
        table.cell(at // 3, at % 3).text = text
    table.cell(1, 1).merge(table.cell(1, 2)).text = "dry"
    table.cell(1, 0).merge(table.cell(2, 0)).text = "both"
    out = io.BytesIO()
    document.save(out)
    assert lines(read(out.getvalue()).text) == [
        *("# The lake", "## Depth", "> Who has no name drowns."),
        *("| Year | Low | High |", "| --- | --- | --- |", "| both | dry | dry |", "| both | 3 | 4 |"),
    ]


def test_notes_comments_and_what_stands_on_every_page_are_marked(read: Read) -> None:
    body = paragraph('The claim</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:t> stands.')
    document = samples.word_of(
        body,
        footnotes=f'<w:footnote w:id="2">{paragraph("Its proof.")}</w:footnote>',
        comments=f'<w:comment w:author="Ada">{paragraph("Really?")}</w:comment>',
        header1=paragraph("Secret"),
    )
    assert lines(read(document).text) == [
        *("The claim[^1] stands.", "[^1]: Its proof.", "Comments:", "- Ada: Really?", "Headers:", "- Secret"),
    ]


def test_a_presentation_keeps_titles_levels_tables_and_the_numbers_of_charts(read: Read) -> None:
    presentation: Any = pptx.Presentation()
    first = presentation.slides.add_slide(presentation.slide_layouts[1])
    first.shapes.title.text = "Ducks"
    frame = first.placeholders[1].text_frame
    frame.text = "Of the lake"
    frame.add_paragraph().text = "Mallard"
    frame.paragraphs[1].level = 1
    second = presentation.slides.add_slide(presentation.slide_layouts[6])
    table = second.shapes.add_table(2, 2, 0, 0, Inches(2), Inches(1)).table
    for at, text in enumerate(("Name", "Count", "Teal", "12")):
        table.cell(at // 2, at % 2).text = text
    data = charts.CategoryChartData()
    data.categories = ["2025", "2026"]
    data.add_series("Seen", (3, 4))
    second.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, Inches(2), Inches(2), data)
    out = io.BytesIO()
    presentation.save(out)
    assert [lines(page) for page in pages(read(out.getvalue()))] == [
        ["# Ducks", "- Of the lake", "  - Mallard"],
        [
            *("| Name | Count |", "| --- | --- |", "| Teal | 12 |"),
            *("Bar chart", "|  | Seen |", "| --- | --- |", "| 2025 | 3 |", "| 2026 | 4 |"),
        ],
    ]


def test_html_keeps_lists_tables_quotations_code_and_links(read: Read) -> None:
    source = """<!doctype html><h2>Ducks</h2><ol start=3><li>three<ul><li>inner</ul><li>four</ol>
    <p>See <a href="https://example.org/a">the lake</a> and <a href="#b">below</a>.</p>
    <blockquote><p>Quack.</p></blockquote><pre>if x:
  y</pre><table><caption>Birds</caption><tr><th rowspan=2>Name<th colspan=2>Count<tr><td>2025<td>2026
    <tr><td>a|b<td>3</table><p>A <math alttext="x^2"><mi>x</mi></math> here</p><table><tr><td>unclosed"""
    assert lines(read(source).text) == [
        *("## Ducks", "3. three", "  - inner", "4. four", "See [the lake](https://example.org/a) and below."),
        *("> Quack.", "```", "if x:", "  y", "```", "Birds"),
        *("| Name | Count | Count |", "| --- | --- | --- |", "| Name | 2025 | 2026 |", "| a\\|b | 3 |  |"),
        *("A $x^2$ here", "unclosed"),
    ]


@pytest.mark.parametrize(
    ("form", "numbers", "expected"),
    [
        ("decimal", (1, 12), ["1", "12"]),
        ("lowerLetter", (1, 26, 27), ["a", "z", "aa"]),
        ("upperRoman", (4, 1998), ["IV", "MCMXCVIII"]),
        ("decimalZero", (3,), ["03"]),
        ("lowerRoman", (0, 10**9), ["0", "1000000000"]),
    ],
)
def test_numbers_are_written_in_their_form(form: str, numbers: tuple[int, ...], expected: list[str]) -> None:
    assert [format_count(number, form) for number in numbers] == expected


def test_a_level_starts_anew_below_the_next_number_above_it() -> None:
    numbering = Numbering(
        {0: ListLevel(pattern="%1."), 1: ListLevel(pattern="%1.%2"), 2: ListLevel(start=3, pattern="%3)")}
    )
    assert [numbering.next(level) for level in (0, 1, 1, 2, 2, 0, 1, 2)] == [
        *("1.", "1.1", "1.2", "3)", "4)", "2.", "2.1", "3)"),
    ]
    numbering.restart(0, 7)
    assert numbering.next(0) == "7."


def test_a_merged_cell_stands_in_each_of_its_places_unless_it_is_long() -> None:
    rows = [[Cell("a", columns=2), Cell("b" * 81, rows=2)], [Cell("c"), Cell("d")], [Cell("e", columns=10**9)]]
    written = markdown(rows).split("\n")
    assert written[0].startswith(f"| a | a | {'b' * 81} |") and written[2].startswith("| c | d |  |")
    assert written[0].count("|") == 101
    assert markdown([[Cell("one")], [Cell("two")]]) == "one\ntwo\n"
    assert markdown([[Cell(""), Cell(" ")]]) == ""


def omml(inner: str) -> str:
    namespace = "http://schemas.openxmlformats.org/officeDocument/2006/math"
    return omml_to_latex(etree.fromstring(f'<m:oMath xmlns:m="{namespace}">{inner}</m:oMath>'))


def run(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (f"<m:f><m:num>{run('x')}</m:num><m:den>{run('2')}</m:den></m:f>", r"\frac{x}{2}"),
        (f"<m:sSup><m:e>{run('r')}</m:e><m:sup>{run('2')}</m:sup></m:sSup>", "r^{2}"),
        (
            f"<m:sSubSup><m:e>{run('ab')}</m:e><m:sub>{run('i')}</m:sub><m:sup>{run('2')}</m:sup></m:sSubSup>",
            "{ab}_{i}^{2}",
        ),
        (f"<m:rad><m:deg>{run('3')}</m:deg><m:e>{run('x')}</m:e></m:rad>", r"\sqrt[3]{x}"),
        (
            f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>{run("n=1")}</m:sub><m:sup>{run("∞")}</m:sup>'
            f"<m:e>{run('n')}</m:e></m:nary>",
            r"\sum_{n=1}^{\infty} n",
        ),
        (
            f'<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val=""/></m:dPr><m:e>{run("x")}</m:e></m:d>',
            r"\left[ x \right.",
        ),
        (f"<m:func><m:fName>{run('sin')}</m:fName><m:e>{run('θ')}</m:e></m:func>", r"\sin \theta"),
        (f"<m:m><m:mr><m:e>{run('a')}</m:e><m:e>{run('b')}</m:e></m:mr></m:m>", r"\begin{matrix} a & b \end{matrix}"),
        (f'<m:acc><m:accPr><m:chr m:val="&#x20d7;"/></m:accPr><m:e>{run("v")}</m:e></m:acc>', r"\vec{v}"),
        (run("E=mc") + "<m:unknown>" + run("±1") + "</m:unknown>", r"E=mc\pm 1"),
    ],
)
def test_a_formula_of_office_becomes_latex(inner: str, expected: str) -> None:
    assert omml(inner) == expected


def test_a_formula_without_end_is_cut_where_it_is_too_deep() -> None:
    assert omml("<m:e>" * 200 + run("x") + "</m:e>" * 200) == ""


@pytest.mark.parametrize(
    "source",
    [
        "<table><tr><td>a" * 60_000,
        "<blockquote>a" * 60_000,
        '<a href="https://example.org">a' * 60_000,
        "<table>" + "<tr><td rowspan=9999 colspan=9999>a" * 9_000,
        "<ol>" * 60_000 + "<li>a",
        "<td " + "a=" * 500_000 + ">a",
    ],
)
def test_html_without_ends_is_read_to_its_end_and_stays_small(source: str, read: Read) -> None:
    text = read(f"<!doctype html>{source}").text
    assert "a" in text and len(text) < 10_000_000


def test_a_sheet_repeats_merged_cells_and_has_its_charts_and_comments_below(read: Read) -> None:
    book = openpyxl.Workbook()
    sheet: Any = book.active
    sheet.title = "Ducks"
    for row in (["Year", "Seen", None], [2025, 3, 4], [None, 5, 6]):
        sheet.append(row)
    sheet.merge_cells("B1:C1")
    sheet.merge_cells("A2:A3")
    sheet["B3"].comment = Comment("Really five?", "Ada")
    bars = BarChart()
    bars.add_data(Reference(sheet, min_col=2, min_row=2, max_row=3))
    sheet.add_chart(bars, "E5")
    workbook = io.BytesIO()
    book.save(workbook)
    result = read(workbook.getvalue())
    assert [line for line in result.text.split("\n") if line] == [
        *("# Ducks", "Year\tSeen\tSeen", "2025\t3\t4", "2025\t5\t6"),
        *("Bar chart", "|  | Series 1 |", "| --- | --- |", "Comments:", "- B3 Ada: Really five?"),
    ]


def test_comments_on_a_slide_say_who_said_what_and_when(read: Read) -> None:
    authors = '<p:cmAuthorLst xmlns:p="p"><p:cmAuthor id="0" name="Ada" initials="A"/></p:cmAuthorLst>'
    comment = '<p:cm authorId="0" dt="2026-01-02T03:04:05.6"><p:text>Too many ducks</p:text></p:cm>'
    comments = f'<p:cmLst xmlns:p="p">{comment}</p:cmLst>'
    slides = samples.with_member(samples.slides(["Ducks"]), "ppt/commentAuthors.xml", authors)
    slides = samples.with_member(slides, "ppt/comments/comment1.xml", comments)
    relations = "ppt/slides/_rels/slide1.xml.rels"
    with zipfile.ZipFile(io.BytesIO(slides)) as opened:
        linked = opened.read(relations).replace(
            b"</Relationships>",
            b'<Relationship Id="c1" Type="comments" Target="../comments/comment1.xml"/></Relationships>',
        )
    result = read(samples.with_member(slides, relations, linked))
    assert result.text == "# Ducks\n\nComments:\n\n- Ada, 2026-01-02 03:04: Too many ducks"
