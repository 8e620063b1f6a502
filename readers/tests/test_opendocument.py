"""Texts, sheets and slides of LibreOffice, and Rich Text."""

import pytest

from readers.tests import samples
from readers.tests.reading import Read, pages, read, refusal
from readers.text.rtf import rtf_to_markdown

__all__ = ["read"]

NUMBERS = """<text:list-style style:name="L1">
<text:list-level-style-number text:level="1" style:num-format="1" style:num-suffix="."/>
<text:list-level-style-number text:level="2" style:num-format="1" text:display-levels="2"/></text:list-style>
<text:list-style style:name="L2"><text:list-level-style-bullet text:level="1"/></text:list-style>
<style:style style:name="P1" style:parent-style-name="Title"/>"""


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def item(text: str, inner: str = "") -> str:
    return f"<text:list-item><text:p>{text}</text:p>{inner}</text:list-item>"


def test_a_text_of_libreoffice_keeps_its_structure(read: Read) -> None:
    nested = f"<text:list>{item('by ship')}{item('by train')}</text:list>"
    body = f"""<office:text><text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>
    <text:p text:style-name="P1">The lake</text:p><text:h text:outline-level="2">Depth</text:h>
    <text:p>It is<text:s text:c="2"/>deep<text:note><text:note-body><text:p>Very.</text:p></text:note-body></text:note>,
    see <text:a xlink:href="https://example.org">the map</text:a><office:annotation><dc:creator>Ada</dc:creator>
    <text:p>Sure?</text:p></office:annotation>.</text:p>
    <text:list text:style-name="L1">{item("Delivery", nested)}{item("Payment")}</text:list>
    <text:list text:style-name="L2">{item("An apple")}</text:list>
    <table:table><table:table-row><table:table-cell table:number-columns-spanned="2"><text:p>Both</text:p>
    </table:table-cell><table:covered-table-cell/></table:table-row><table:table-row><table:table-cell><text:p>a</text:p>
    </table:table-cell><table:table-cell><text:p>b</text:p></table:table-cell></table:table-row></table:table>
    </office:text>"""
    result = read(samples.open_document("text", body, NUMBERS))
    assert result.media_type == "application/vnd.oasis.opendocument.text"
    text = result.text.replace("\n    see", " see").replace("\n    ", "")
    assert lines(text) == [
        *("# The lake", "## Depth", "It is  deep[^1], see [the map](https://example.org)."),
        *("1. Delivery", "  1.1 by ship", "  1.2 by train", "2. Payment", "- An apple"),
        *("| Both | Both |", "| --- | --- |", "| a | b |", "[^1]: Very.", "Comments:", "- Ada: Sure?"),
    ]


def test_sheets_and_slides_of_libreoffice_are_pages(read: Read) -> None:
    def row(*cells: str, again: int = 1) -> str:
        inner = "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in cells)
        blank = '<table:table-cell table:number-columns-repeated="16000"/>'
        return f'<table:table-row table:number-rows-repeated="{again}">{inner}{blank}</table:table-row>'

    full = f'<table:table table:name="Bills">{row("Ada", "12.50")}{row(again=1_000_000)}{row("Bob")}</table:table>'
    book = samples.open_document("spreadsheet", f'{full}<table:table table:name="Empty">{row()}</table:table>')
    assert pages(read(book)) == ["# Bills\nAda\t12.50\n[1000000 blank rows]\nBob", ""]
    slide = """<draw:page><draw:frame presentation:class="outline"><draw:text-box><text:list>
    <text:list-item><text:p>Mallard</text:p></text:list-item></text:list></draw:text-box></draw:frame>
    <draw:frame presentation:class="title"><draw:text-box><text:p>Ducks</text:p></draw:text-box></draw:frame>
    <presentation:notes><draw:frame><draw:text-box><text:p>Slowly.</text:p></draw:text-box></draw:frame>
    </presentation:notes></draw:page>"""
    deck = read(samples.open_document("presentation", slide + "<draw:page/>"))
    assert [lines(page) for page in pages(deck)] == [["# Ducks", "- Mallard", "Notes:", "Slowly."], []]
    assert deck.left_out == {"slides": 1}


def test_a_title_that_came_from_powerpoint_is_the_first_shape_of_a_slide_whose_layout_has_one(read: Read) -> None:
    layout = """<style:presentation-page-layout style:name="A"><presentation:placeholder presentation:object="title"/>
    </style:presentation-page-layout>"""
    shapes = "".join(
        f"<draw:custom-shape><text:p>{text}</text:p></draw:custom-shape>" for text in ("Ducks", "They swim.")
    )
    slide = '<draw:page presentation:presentation-page-layout-name="{}">{}</draw:page>'
    empty = '<draw:frame presentation:class="title"/>'
    body = slide.format("A", shapes) + slide.format("B", shapes) + slide.format("A", empty + shapes)
    first, *others = pages(read(samples.open_document("presentation", body, layout)))
    assert first == "# Ducks\n\nThey swim." and others == ["Ducks\n\nThey swim."] * 2


def test_a_chart_gives_its_numbers_and_a_picture_what_it_is_said_to_show(read: Read) -> None:
    body = """<text:p>See <draw:frame><draw:object xlink:href="./Object"/></draw:frame></text:p>
    <text:p><draw:frame><draw:image/><svg:desc xmlns:svg="svg">A duck</svg:desc></draw:frame></text:p>"""
    cells = "".join(f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in ("2025", "3"))
    chart = f"<table:table><table:table-row>{cells}</table:table-row></table:table>"
    result = read(samples.open_document("text", body, Object_content=chart))
    assert lines(result.text) == ["See", "Chart:", "| 2025 | 3 |", "| --- | --- |", "[Picture: A duck]"]
    assert list(map(str, result.notes)) == ["Pictures that were left out: 1."]


HEAD = r"\ansi\ansicpg1252\uc1{\fonttbl{\f0\fcharset0 A;}{\f1\fcharset204 B;}{\f2\fcharset128 C;}}"


def rich(body: str) -> str:
    return "".join(rtf_to_markdown(f"{{\\rtf1{HEAD}\\f0 {body}}}".encode("latin-1")))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (r"Gr\'fc\'dfe {\b bold} \'80\par", ["Grüße bold €"]),
        (r"{\f1\'ea\'ee\'f2} and {\f2\'82\'b1\'82\'f1}\par", ["кот and こん"]),
        (r"\u1082?\u1086?\u1090? \u-10179?\u-8704?\par", ["кот 😀"]),
        (r"\uc2\u233 ab!\uc0\u233 c\par", ["é!éc"]),
        (r"{\pict\bin5 }}{{{ffd8}a\par", ["a"]),
        (r"{\*\secret hidden}{\info{\author Ada}}{\field{\*\fldinst HYPERLINK x}{\fldrslt seen}}\par", ["seen"]),
        (r"{\b0\*\cs7 seen}{\list{\listname L1;}}\par", ["seen"]),
        (r"\outlinelevel0 Title\par\pard text\line more\par", ["# Title", "text", "more"]),
        (
            r"\intbl a\cell b|c\cell\row\intbl d\cell\cell\row\pard after\par",
            ["| a | b\\|c |", "| --- | --- |", "| d |  |", "after"],
        ),
        (r"{\listtext 4.2\tab}Pay.\par{\listtext\'b7\tab}An apple\par", ["4.2\tPay.", "- An apple"]),
        (
            r"Claim{\footnote Its {\i proof}.} stands.\par{\header Secret\par}",
            ["Claim[^1] stands.", "[^1]: Its proof.", "Headers:", "- Secret"],
        ),
        (r"Really{\*\annotation\chatn No.}?\par", ["Really?", "Comments:", "- No."]),
        (r"\{a\}\~b\_c\emdash\par", ["{a}\xa0b-c—"]),
    ],
)
def test_rich_text_is_what_its_reader_sees(body: str, expected: list[str]) -> None:
    assert lines(rich(body)) == expected


def test_rich_text_is_told_by_its_beginning_and_read_whatever_becomes_of_it(read: Read) -> None:
    result = read(b"{\\rtf1\\mac Gr\x9f\\'a7e\\par", "letter.txt")
    assert (result.media_type, result.text) == ("application/rtf", "Grüße")
    assert read(b"{\\rtf1 " + b"{" * 100_000 + b"deep" + b"}" * 100_000).text == "deep"
    assert refusal(read, b"{\\rtf1{\\pict\\wmetafile8 0100}\\par}").code == "no_text"
