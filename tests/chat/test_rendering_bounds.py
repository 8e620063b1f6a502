"""The HTML of any answer, and the time to render it, are bounded."""

import re
import subprocess
import sys
from html import escape

import pytest

from chat.rendering import markdown
from chat.rendering.highlighting import MAX_SPANS
from chat.rendering.markdown import MAX_CHARACTERS, MAX_HTML, BlockStream, RenderAllowance, render
from tests.chat.dense_texts import DENSE, SOURCES, text

NOTE = 500  # bytes that say that something is not shown, with the elements around a text
FORMULA = re.compile("<math")


def size(blocks: list[str]) -> int:
    return len("".join(blocks).encode())


@pytest.mark.parametrize("name", DENSE)
def test_a_text_of_any_kind_has_bounded_html(name: str) -> None:
    for length in (100_000, MAX_CHARACTERS, 1_000_000):
        assert size(render(text(name, length), SOURCES)) <= MAX_HTML + NOTE


@pytest.mark.process
def test_no_text_of_any_kind_takes_long() -> None:
    """A process of its own renders the texts. One that takes too much CPU time ends it, and is the last named."""
    program = "import django; django.setup(); from tests.chat.dense_texts import render_all; render_all()"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout.splitlines()[-1:]) == (0, ["all"]), process.stdout + process.stderr


def test_formulas_of_an_answer_have_an_allowance_together() -> None:
    for name in ("formulas with primes", "formulas with ties", "bold formulas", "aligned formulas"):
        allowance = RenderAllowance()
        html = "".join(render(text(name), allowance=allowance))
        assert 0 < len(FORMULA.findall(html)) < 8, name
        assert "<code>" in html  # the others stand there as they were written
        assert len(html) < 1_000_000
    many = "".join(f"$x_{{{number}}}$ " for number in range(8_000))
    assert len(FORMULA.findall("".join(render(many)))) == markdown.MAX_FORMULA_CHARACTERS // markdown.MIN_FORMULA_COST


def test_an_ordinary_answer_with_many_formulas_has_them_all() -> None:
    piece = r"The energy $E = mc^2$ and the sum $$\sum_{i=0}^{n} \frac{x_i^2}{2}$$ are known." + "\n\n"
    html = "".join(render(piece * 300))
    assert len(FORMULA.findall(html)) == 600


@pytest.mark.parametrize("name", ["json", "nginx", "c", "yaml", "python"])
def test_colours_of_an_answer_have_an_allowance_together(name: str) -> None:
    html = "".join(render(text(name)))
    assert html.count("<span") <= MAX_SPANS + 2 * 6  # of the heads of the code, too
    assert size([html]) < 100_000 * 5 + MAX_SPANS * 40


def test_what_is_not_rendered_is_cut_off_where_it_is_too_long() -> None:
    (html,) = render("&" * (MAX_CHARACTERS - 1))
    assert html == f"<pre>{'&amp;' * (MAX_CHARACTERS - 1)}</pre>"
    (html,) = render("ä" * 500_000)
    shown, _, rest = html.removeprefix("<pre>").partition("</pre>")
    assert shown == "ä" * MAX_CHARACTERS
    assert "The rest is too long to be shown here" in rest


def test_all_texts_of_an_answer_share_one_allowance() -> None:
    allowance = RenderAllowance()
    first = render("&" * 300_000, allowance=allowance)
    assert first == [f"<pre>{'&amp;' * 300_000}</pre>"]
    (second,) = render("<" * 200_000, allowance=allowance)
    shown = second.removeprefix("<pre>").partition("</pre>")[0]
    assert shown == escape("<" * 100_000)
    (third,) = render("no more", allowance=allowance)
    assert third.startswith("<pre></pre><p>The rest")


def test_many_dense_texts_of_an_answer_are_bounded_together() -> None:
    allowance = RenderAllowance()
    sizes = [size(render(text(name, 20_000), SOURCES, allowance=allowance)) for name in DENSE]
    assert sum(sizes) <= MAX_HTML + NOTE * len(DENSE)
    assert allowance.steps >= 0 and allowance.formula_bytes >= 0 and allowance.html >= 0


@pytest.mark.parametrize("name", ["formulas with primes", "links to one long address", "citations", "empty code"])
def test_the_stream_ends_as_the_page_also_where_a_text_is_over_its_allowance(name: str) -> None:
    source, page, stream = text(name), RenderAllowance(), RenderAllowance()
    for _ in range(2):  # the second text finds what the first has left
        growing = BlockStream(SOURCES, stream)
        placed: dict[int, str] = {}
        for start in range(0, len(source), 9_000):
            placed.update(growing.push(source[start : start + 9_000]))
        placed.update(growing.finish())
        assert [placed[index] for index in range(growing.count)] == render(source, SOURCES, allowance=page)
