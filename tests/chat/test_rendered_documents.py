"""Documents are read as documents: rendered Markdown with the passage marked, and plain words in titles."""

import re

import pytest
from django.test import Client

from accounts.models import User
from chat.models import Conversation, Message
from chat.models.words import title_from
from chat.rendering.documents import DocumentRenderer, TextMark, excerpt_html, plain_html
from chat.rendering.markdown import RenderAllowance
from core.marks import plain_line
from files.models import File, FileText

CONTRACT = (
    "# Service contract\n\n## 7. Term\nThe notice *period* is 60 days.\n\n| part | days |\n| --- | --- |\n| A | 60 |\n"
)


def rendered(begins: str, ends: str) -> str:
    first = CONTRACT.index(begins)
    last = CONTRACT.index(ends) + len(ends)
    return DocumentRenderer(RenderAllowance()).html(CONTRACT, [TextMark(first, last)], anchor=True)


def test_a_passage_is_marked_in_the_rendered_text_with_one_place_to_go_to() -> None:
    html = rendered("## 7", "| A |")
    assert '<p class="heading-1">Service contract</p>' in html and "<h1" not in html
    assert '<p class="heading-2">7. <mark id="passage" tabindex="-1">Term</mark></p>' in html
    assert '<mark tabindex="-1">The notice </mark><em><mark tabindex="-1">period</mark></em>' in html
    assert '<td><mark tabindex="-1">A</mark></td>\n<td>60</td>' in html and html.count('id="passage"') == 1


def test_a_passage_in_the_middle_of_a_line_is_marked_alone() -> None:
    assert 'is <mark id="passage" tabindex="-1">60 days</mark>.' in rendered("60 days", "60 days")


def test_the_passage_around_a_sentence_is_marked_faintly() -> None:
    first, last = (CONTRACT.index(word) for word in ("The notice", "60 days"))
    end = CONTRACT.index("\n\n|")
    marks = [TextMark(first, last, faint=True), TextMark(last, last + 7), TextMark(last + 7, end, faint=True)]
    html = DocumentRenderer(RenderAllowance()).html(CONTRACT, marks, anchor=True)
    assert '<mark id="passage" tabindex="-1">60 days</mark><mark class="around">.</mark>' in html
    assert '<mark class="around">The notice </mark><em><mark class="around">period</mark></em>' in html
    assert plain_html("a < b. c", [TextMark(0, 6, faint=True), TextMark(7, 8)], anchor=True) == (
        '<pre dir="auto"><mark class="around">a &lt; b.</mark> <mark id="passage" tabindex="-1">c</mark></pre>'
    )


@pytest.mark.parametrize("begins", range(0, len(CONTRACT), 7))
def test_no_place_of_a_passage_breaks_the_page(begins: int) -> None:
    html = DocumentRenderer(RenderAllowance()).html(CONTRACT, [TextMark(begins, begins + 20)], anchor=True)
    assert html.count("<mark") == html.count("</mark>") and not re.search("[\ue000-\ue002]", html)
    assert html.count("<table>") == html.count("</table>")


def test_what_somebody_planted_in_a_file_stays_text() -> None:
    evil = "<script>alert(1)</script> [x](javascript:alert(1)) \ue000"
    html = DocumentRenderer(RenderAllowance()).html(evil, [TextMark(3, 12)], anchor=True)
    assert "<script" not in html and "javascript:" not in html.replace("(javascript:", "")


def test_an_excerpt_ends_between_words() -> None:
    assert excerpt_html("**fast** " * 40, 100).endswith(" …</p></div>")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("## Comparing *three* stores", "Comparing three stores"),
        ("\n" * 5_000 + "> **Copy** the `table`", "Copy the table"),
        ("2 * 3 * 4 and __init__", "2 * 3 * 4 and __init__"),
    ],
)
def test_titles_have_no_marks(text: str, title: str) -> None:
    assert title_from(text) == plain_line(text, 60) == title


@pytest.mark.django_db
def test_pages_of_files_and_days_show_documents() -> None:
    owner, client = User.objects.create_user("olga"), Client()
    client.force_login(owner)
    row = File.objects.create(
        owner=owner, name="contract.pdf", size=1, sha256="0" * 64, status="ready", media_type="application/pdf"
    )
    FileText.objects.create(file=row, text=CONTRACT, spans=[[0, len(CONTRACT)]])
    start = CONTRACT.index("60 days")
    page = client.get(f"/files/{row.pk}/?start={start}&end={start + 7}").content.decode()
    assert '<p class="heading-1">Service contract</p>' in page and "# Service" not in page
    assert '<mark id="passage" tabindex="-1">60 days</mark>' in page
    File.objects.filter(pk=row.pk).update(media_type="text/plain")
    assert "# Service contract" in client.get(f"/files/{row.pk}/").content.decode(), "what is no Markdown stays"
    place = Conversation.objects.create(owner=owner, title="Stores")
    parts = [{"type": "text", "text": "## Stores\nAn *LSM tree* is **fast**."}]
    Message.objects.create(conversation=place, role="assistant", parts=parts)
    day = client.get("/daily/", follow=True).content.decode()
    assert "An <em>LSM tree</em> is <strong>fast</strong>." in day and "## Stores" not in day
