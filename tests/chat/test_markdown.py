"""Markdown of models becomes safe HTML, whole or in pieces."""

import re
from html import escape, unescape
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chat.rendering.highlighting import Colours, highlight
from chat.rendering.markdown import MAX_CHARACTERS, BlockStream, render
from chat.rendering.references import Source, Sources

ALLOWED_LINK = re.compile(r'href="(https?://|mailto:)', re.IGNORECASE)
ATTRIBUTE = re.compile(r"<[^>]*\s(on\w+|style|src|srcset|background|formaction|action)\s*=", re.IGNORECASE)

FRAGMENTS = [
    *[
        "# Title",
        "words and *more*",
        "**bold",
        "`code`",
        "``",
        "- item",
        "  - deeper",
        "1. one",
        "> quote",
        "---",
        "===",
    ],
    *[
        "```python",
        "```",
        "~~~",
        "    indented",
        "x = 1",
        "| a | b |",
        "|---|:-:|",
        "| 1 | 2 |",
        "[ ] task",
        "- [x] done",
    ],
    *[
        "[foo]: https://example.org",
        "[foo]",
        "[a](javascript:alert(1))",
        "![i](https://example.org/i.png)",
        "<b onclick=x>",
    ],
    *[
        "$$",
        "$a^2$",
        r"\frac{a}{b}",
        r"\(",
        r"\)",
        r"\[",
        r"\]",
        "a $5 b $6",
        "<https://example.org>",
        "\\",
        "&amp;",
        "<!--",
    ],
    *["\r", "\t", "\x00", "é", "\u2028", "*" * 5, "~~gone~~"],
]
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.tuples(st.sampled_from(FRAGMENTS), st.sampled_from(["", " ", "\n", "\n\n", "\r\n"])), max_size=25).map(
        lambda pairs: "".join(first + second for first, second in pairs)
    ),
)


def stream(text: str, cuts: list[int]) -> tuple[dict[int, str], BlockStream]:
    """Places every block as a reader of the stream does."""
    growing = BlockStream()
    placed: dict[int, str] = {}
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    for start, end in pairwise(edges):
        placed.update(growing.push(text[start:end]))
    placed.update(growing.finish())
    return placed, growing


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 1000), max_size=30))
@example("[a]\n\n[a]: https://example.org\n\nb", [3, 9, 20])
@example("a\r\n\r\nb", [2])
@example("[foo]: https://example.o", [3])
def test_a_text_streamed_in_any_pieces_ends_as_the_text_rendered_at_once(text: str, cuts: list[int]) -> None:
    placed, growing = stream(text, cuts)
    blocks = render(text)
    assert growing.count == len(blocks)
    assert [placed[index] for index in range(growing.count)] == blocks


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_nothing_that_runs_or_loads_survives(text: str) -> None:
    html = "".join(render(text))
    assert not ATTRIBUTE.search(html)
    assert not re.search(r"<(script|img|iframe|object|embed|svg|form|link|meta|base|style)\b", html, re.IGNORECASE)
    # A link may be without an address: the sanitiser drops one that is none.
    assert len(ALLOWED_LINK.findall(html)) == len(re.findall(r"\bhref=", html))
    assert html.count("<a ") == html.count('rel="noopener noreferrer nofollow"')


@pytest.mark.parametrize(
    "link",
    [
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](java\tscript:alert(1))",
        "[a](data:text/html,x)",
        "[a](vbscript:x)",
        "[a](file:///etc/passwd)",
        "[a](/logout/)",
        "[a](//example.org)",
        "<javascript:alert(1)>",
        "[a][b]\n\n[b]: javascript:alert(1)",
        "![a](data:image/png;base64,AAAA)",
    ],
)
def test_a_link_that_does_not_lead_to_the_web_or_mail_is_dead(link: str) -> None:
    assert "<a" not in "".join(render(link))


def test_a_link_opens_elsewhere_and_takes_nothing_with_it() -> None:
    (html,) = render("[a](https://example.org 'title')")
    assert html == (
        '<p><a href="https://example.org" title="title" target="_blank" rel="noopener noreferrer nofollow">a</a></p>'
    )


def test_an_image_is_a_link_that_names_its_host() -> None:
    (html,) = render("![A *chart*](https://images.example.org/a.png?u=1&v=2)")
    assert "<img" not in html
    assert ">Image: A chart — images.example.org</a>" in html
    assert 'href="https://images.example.org/a.png?u=1&amp;v=2"' in html


def test_an_image_inside_a_link_is_no_second_link() -> None:
    (html,) = render("[![A](https://a.example/a.png)](https://b.example) ![B](https://c.example/c.png)")
    assert html.count("<a ") == 2
    assert '<span class="image-link">Image: A — a.example</span></a>' in html


def test_html_in_the_text_is_shown_as_text() -> None:
    assert render("<script>alert(1)</script> & <b>x</b>") == [
        "<p>&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;x&lt;/b&gt;</p>"
    ]


def test_a_code_block_has_its_language_a_copy_button_and_classes() -> None:
    (html,) = render("```python title\nif x < 1: pass\n```")
    assert html.startswith('<div class="code"><div class="code-head"><span class="lang">python</span><button')
    assert 'type="button" class="copy" data-copy' in html
    assert '<span class="k">if</span>' in html
    assert "&lt;" in html


def test_an_unknown_language_is_plain_and_cannot_break_out_of_its_label() -> None:
    (html,) = render('```"><img/src=x>\n<i>\n```')
    assert "<img" not in html
    assert "<code>&lt;i&gt;\n</code>" in html


def test_a_table_says_its_alignment_in_classes_and_scrolls_by_itself() -> None:
    (html,) = render("| a | b |\n|---|--:|\n| 1 | 2 |")
    assert html.startswith('<div class="table"><table>')
    assert '<td class="right">2</td>' in html


def test_tasks_and_strikes_are_known() -> None:
    (html,) = render("- [x] done\n- [ ] ~~open~~")
    assert html.count('type="checkbox"') == 2
    assert html.count('checked="') == 1
    assert "<s>open</s>" in html


def test_a_list_of_tasks_says_so_on_each_level() -> None:
    (html,) = render("- [ ] a\n  1. plain\n  2. [X] b\n- c\n\n  [ ] no item")
    assert html.startswith('<ul class="contains-task-list">')
    assert '<ol class="contains-task-list">' in html
    assert (html.count('class="task-list-item"'), html.count("[ ]")) == (2, 1)


def test_code_has_colours_in_a_known_language_up_to_a_size() -> None:
    for name in ("python", "PY", "c++", "ocaml", "ini"):
        assert "<span class=" in render(f"```{name}\nlet x = 1\n```")[0].split("<code>")[1], name
    for name in ("autoit", "devicetree", "nonsense", ""):  # Pygments knows the first two, and takes seconds for them
        assert "<span" not in render(f"```{name}\nlet x = 1\n```")[0].split("<code>")[1], name
    long = "x = 1\n" * 4_000
    assert f"<code>{long}</code>" in render(f"```python\n{long}```")[0]


def test_colours_end_where_their_time_does_and_the_code_stays_whole() -> None:
    code = "x = 1 # <a>\n" * 100
    colours = Colours(seconds=1e-9)
    html = highlight(code, "python", colours)
    assert unescape(re.sub("<[^>]*>", "", html)) == code
    assert html.count("<span") == 1
    assert highlight(code, "python", colours) == escape(code, quote=False)


@pytest.mark.parametrize("piece", ["![", "- a\n"])
def test_markup_too_dense_to_render_is_shown_as_it_is(piece: str) -> None:
    text = piece * (MAX_CHARACTERS // len(piece))
    assert render(text) == [f"<pre>{escape(text, quote=False)}</pre>"]


def test_what_one_rule_makes_in_one_step_is_counted_too() -> None:
    """A row of a table is as many tokens as it has cells, a citation as many links as it has numbers."""
    table = f"|{'a|' * 1_000}\n|{'-|' * 1_000}\n" + f"|{'a|' * 1_000}\n" * 50
    citations = "[1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9]" * 3_000
    sources = Sources({number: Source(number, "contract", "/files/x/") for number in range(1, 10)})
    for text in (table, citations):
        assert render(text, sources) == [f"<pre>{text}</pre>"]
    assert render(f"[{'1, ' * 60}1]", sources)[0].count("<a") == 0


def test_dense_markup_is_rendered_anew_when_it_has_doubled() -> None:
    """The text comes in a hundred pieces. Otherwise each piece would render the whole text before it."""
    stream, piece = BlockStream(), "- ```\n  a\n  ```\n" * 40
    rendered = sum(bool(stream.push(piece)) for _ in range(100))
    assert rendered < 40
    assert stream.finish() == [(0, render(piece * 100)[0])]


def test_a_stream_too_dense_to_render_is_shown_as_it_is_at_its_end() -> None:
    text = "![" * (MAX_CHARACTERS // 2)
    stream = BlockStream()
    assert [list(stream.push(half)) for half in (text[:200_000], text[200_000:])] == [[], []]
    assert stream.finish() == [(0, render(text)[0])]
    assert stream.count == 1


@pytest.mark.parametrize(
    ("text", "display"),
    [
        ("$a^2$", "inline"),
        (r"\(a^2\)", "inline"),
        ("$$a^2$$", "block"),
        (r"\[a^2\]", "block"),
        ("\\[\na^2\n\\]", "block"),
    ],
)
def test_a_formula_becomes_mathml(text: str, display: str) -> None:
    (html,) = render(text)
    assert f'<math display="{display}">' in html
    assert "<msup><mi>a</mi><mn>2</mn></msup>" in html


def test_the_lines_of_a_formula_are_no_list() -> None:
    (html,) = render("\\[\na\n+ b\n- c\n\\]")
    assert "<li>" not in html
    assert "<mo>+</mo>" in html


def test_money_is_no_formula() -> None:
    assert render("It costs $5 or $6.") == ["<p>It costs $5 or $6.</p>"]


def test_a_formula_that_cannot_be_read_is_shown_as_written() -> None:
    (html,) = render("$" + r"\frac" * 30 + "$")
    assert r"<code>\frac\frac" in html


def test_a_formula_cannot_carry_a_link() -> None:
    (html,) = render(r"$\href{javascript:alert(1)}{x}$")
    assert "href=" not in html


@pytest.mark.parametrize(
    "text",
    [
        *[
            "> " * 20_000,
            "- " * 20_000,
            "[" * 20_000,
            "*a" * 10_000,
            "`a``" * 5_000,
            "\\[a\n" * 5_000,
            "$$a\n\n" * 5_000,
        ],
        "".join("  " * depth + "- x\n" for depth in range(150)),
        "$" + "{" * 3_000 + "$",
        "\ud800 lone surrogate",
        "x" * 500_000,
    ],
)
def test_a_hostile_text_is_rendered_all_the_same(text: str) -> None:
    assert isinstance("".join(render(text)), str)


def test_only_the_unfinished_block_is_sent_again() -> None:
    growing = BlockStream()
    assert growing.push("# One\n\nTwo") == [(0, "<h1>One</h1>"), (1, "<p>Two</p>")]
    assert growing.push(" more") == [(1, "<p>Two more</p>")]
    assert growing.push("\n\nThree") == [(2, "<p>Three</p>")]
    assert growing.tail_size == len("Three")
    assert growing.finish() == []
    assert growing.count == 3


def test_a_definition_further_down_is_used_above_at_the_end() -> None:
    growing = BlockStream()
    assert growing.push("[a]\n\nnext\n\n")[0] == (0, "<p>[a]</p>")
    growing.push("[a]: https://example.org\n")
    ((index, html),) = growing.finish()
    assert index == 0
    assert 'href="https://example.org"' in html


def test_a_definition_above_is_known_to_what_follows() -> None:
    growing = BlockStream()
    growing.push("[a]: https://example.org\n\nfirst\n\nsecond\n\n")
    ((index, html),) = growing.push("third [a]")
    assert index == 2
    assert 'href="https://example.org"' in html


@pytest.mark.parametrize("line", ["x = [1, 2, 'abc']  # yes\n", "- item **one** with text\n", "word *em* and "])
def test_a_long_block_is_rendered_a_bounded_number_of_times(line: str) -> None:
    growing = BlockStream()
    if line.startswith("x"):
        growing.push("```python\n")
    sent = [growing.push(line) for _ in range(50_000 // len(line))]
    characters = sum(len(html) for blocks in sent for _, html in blocks)
    assert characters < 4_000_000  # sent again with every piece it would be some 50,000,000
    assert len([blocks for blocks in sent if blocks]) < 250


def test_a_fence_that_closes_after_a_long_block_is_seen_at_once() -> None:
    growing = BlockStream()
    growing.push("```python\n" + "x = 1\n" * 500)  # few enough for the time that colours may take
    assert growing.push("y = 2\n") == []
    changed = dict(growing.push("```\n\nAfter"))
    assert '<span class="n">y</span>' in changed[0]
    assert changed[1] == "<p>After</p>"


def test_a_number_becomes_a_link_only_when_it_stands_for_a_document() -> None:
    sources = Sources()
    for number in (1, 2):
        sources.add_documents([{"number": number, "title": "T", "url": f"https://example.org/{number}"}])
    text = "One [1], both [1][2], twice [[2]], a list [1, 7]: and [7], [1](https://x.example), `[1]`."
    html = "".join(render(text, sources))
    assert html.count('class="citation"') == 5
    assert "[<a" in html and "[7]" in html and "<code>[1]</code>" in html
    assert render("[1]") == ["<p>[1]</p>"]
