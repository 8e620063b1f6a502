"""Mark what a document has and does not show, and leave out what a tracked change has deleted."""

import pytest

from readers.tests import office_97, samples
from readers.tests.office_97 import DELETED, HIDDEN
from readers.tests.reading import Read, pages, read
from readers.text.html import page_text

__all__ = ["read"]

RUN = "<w:r><w:rPr>{}</w:rPr><w:t>{}</w:t></w:r>"


def test_hidden_text_of_word_is_marked_by_its_run_or_its_style(read: Read) -> None:
    styles = '<w:style w:styleId="Note"><w:name w:val="Note"/><w:rPr><w:vanish/></w:rPr></w:style>'
    runs = RUN.format("<w:vanish/>", "not ") + RUN.format('<w:rStyle w:val="Note"/>', "shown")
    shown = RUN.format('<w:vanish w:val="0"/>', "All of it.")
    row = "<w:tr><w:trPr><w:hidden/></w:trPr><w:tc><w:p>{0}</w:p></w:tc><w:tc><w:p>{0}</w:p></w:tc></w:tr>"
    body = (
        f"<w:p>{shown}{runs}</w:p>{samples.paragraph('Instructions', 'Note')}"
        f"<w:tbl>{row.format(RUN.format('', 'x'))}</w:tbl>"
    )
    result = read(samples.word_of(body, styles=styles))
    assert [line for line in result.text.split("\n") if line] == [
        *(
            "All of it.[Hidden text: not shown]",
            "[Hidden text: Instructions]",
            "| [Hidden row] x | x |",
            "| --- | --- |",
        ),
    ]
    assert result.left_out == {"hidden": 3}


def test_hidden_slides_and_shapes_are_marked(read: Read) -> None:
    deck = samples.slides(["Alpha", "Beta"])
    for number, old, new in ((1, "<p:sld ", '<p:sld show="0" '), (2, 'name="Title 1"', 'name="Title 1" hidden="1"')):
        name = f"ppt/slides/slide{number}.xml"
        deck = samples.with_member(deck, name, samples.member(deck, name).replace(old, new))
    result = read(deck)
    assert pages(result) == ["[Hidden slide]\n\n# Alpha", "[Hidden text: Beta]"]
    assert result.left_out == {"hidden": 2}


def test_hidden_text_and_slides_of_libreoffice_are_marked(read: Read) -> None:
    styles = (
        '<style:style style:name="T1"><style:text-properties text:display="none"/></style:style>'
        '<style:style style:name="dp2"><style:drawing-page-properties presentation:visibility="hidden"/></style:style>'
    )
    body = (
        '<office:text><text:p>Shown <text:span text:style-name="T1">not shown</text:span></text:p><text:section'
        ' text:display="none"><text:p>Nor this.</text:p></text:section><text:p>End <text:hidden-text'
        ' text:string-value="x" text:is-hidden="true"/></text:p></office:text>'
    )
    result = read(samples.open_document("text", body, styles))
    assert result.text.split("\n") == [
        *("Shown [Hidden text: not shown]", "", "[Hidden text: Nor this.]", "", "End [Hidden text: x]"),
    ]
    assert result.left_out == {"hidden": 3}
    frame = "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    page = f'<draw:page draw:style-name="{{}}">{frame}</draw:page>'
    body = f"<office:presentation>{page.format('dp1', 'One')}{page.format('dp2', 'Two')}</office:presentation>"
    assert pages(read(samples.open_document("presentation", body, styles))) == ["One", "[Hidden slide]\n\nTwo"]


def test_deleted_text_of_word_97_is_left_out_and_hidden_text_is_marked(read: Read) -> None:
    runs = (("The price is ", 0), ("FIFTEEN", DELETED), ("TWENTY euro.", 0), (" Psst", HIDDEN), (" End.\r", 0))
    result = read(office_97.compound(office_97.document(*runs)))
    assert result.text == "The price is TWENTY euro. [Hidden text: Psst] End."
    assert result.left_out == {"hidden": 1}
    deleted_end = (("One", 0), (" and\r", DELETED), (" two\r", 0))
    assert read(office_97.compound(office_97.document(*deleted_end))).text == "One two"


def test_deleted_text_of_rtf_is_left_out_and_hidden_text_is_marked(read: Read) -> None:
    source = (
        r"{\rtf1\ansi The price is {\deleted\revauthdel1\revdttmdel-2015295488 FIFTEEN}{\revised\revdttm-2015295488 "
        r"TWENTY} euro.{\v  not} {\v shown} End.\par {\deleted gone\par}{\mvf moved}Next\plain .\par}"
    )
    result = read(source)
    assert result.text.split("\n") == ["The price is TWENTY euro. [Hidden text: not shown] End.", "", "Next."]
    assert result.left_out == {"hidden": 1}


PAGE = """<!doctype html><html><head><style>@media print {.screen {display: none}} .gone, #off {display:none}</style>
</head><body><p>Shown <span style="color: red; display : none">not <b>this</b></span> too</p><div hidden><ul><li>one
<li>two</ul></div><p class="gone">three<p id=off>four<p class=screen aria-hidden=true>five</p>
<table><tr style="visibility:hidden"><td>a<td>b<tr><td>c<td>d</table>
<dialog>six</dialog><i style="font-size:0">seven</i>
<img alt="A cat" src="cat.png"></body></html>"""


def test_what_a_page_hides_is_marked(read: Read) -> None:
    result = read(PAGE)
    assert [line for line in result.text.split("\n") if line] == [
        "Shown [Hidden text: not this] too", "- [Hidden text: one]", "- [Hidden text: two]", "[Hidden text: three]",
        "[Hidden text: four]", "five", "| [Hidden text: a] | [Hidden text: b] |", "| --- | --- |", "| c | d |",
        "[Hidden text: six]", "[Hidden text: seven] [Picture: A cat]",
    ]  # fmt: skip
    assert result.left_out == {"hidden": 9, "pictures": 1}
    assert "Shown [Hidden text: not this] too" in page_text(PAGE)[1]


MATH = "<math><mfrac><mi>a</mi><msqrt><mn>2</mn></msqrt></mfrac><mo>&ne;</mo><mi>sin</mi><mi>x</mi></math>"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (MATH, r"$\frac{a}{\sqrt{2}}\neq \sin x$"),
        ('<math alttext="{\\displaystyle x^{2}}"><mi>x</mi></math>', "$x^{2}$"),
        (
            '<span class="katex"><span class="katex-mathml"><math><semantics><mi>E</mi><annotation'
            ' encoding="application/x-tex">E=mc^2</annotation></semantics></math></span><span class="katex-html"'
            ' aria-hidden="true"><span>E=mc2</span></span></span>',
            "$E=mc^2$",
        ),
        ('<span class="MathJax"><span>x1</span></span><script type="math/tex">x_1</script>', "$x_1$"),
        ('<div class="MathJax" data-mathml="&lt;math&gt;&lt;mi&gt;y&lt;/mi&gt;&lt;/math&gt;"><b>Y</b></div>', "$y$"),
        (f"<mjx-container><mjx-math></mjx-math><mjx-assistive-mml>{MATH}</mjx-assistive-mml></mjx-container>",
         r"$\frac{a}{\sqrt{2}}\neq \sin x$"),
        (
            '<span style="display: none"><math alttext="z"><mi>z</mi></math></span><img class="mwe-math-fallback-image"'
            ' alt="{\\displaystyle z}">',
            "$z$",
        ),
        ('<img class="latex" alt="\\alpha">', r"$\alpha$"),
        ("<math>" * 3 + "x", "x"),
    ],
)  # fmt: skip
def test_a_formula_of_a_page_is_read_from_its_source(read: Read, source: str, text: str) -> None:
    assert read(f"<!doctype html><p>Let {source} be.</p>").text == f"Let {text} be."
