"""The guide at `/help/`: its pages, links, languages and search."""

import re

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from accounts.models import User
from config.help import guide, search
from config.help.rendering import address_of, anchor_of, render

PAGES = [page.path for page in guide.pages("en")]


@pytest.fixture
def reader(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_user("reader", password="of the guide", language="en"))
    return client


@pytest.mark.parametrize("path", [path for path in PAGES if not path.startswith("decisions/")])
def test_links_of_a_page_lead_to_pages(path: str) -> None:
    page = guide.page(path, "en")
    assert page is not None
    targets = re.findall(r'href="(/[^"#]*)', render(page))
    addresses = {address_of(guide.GuidePlace(each, "")) for each in PAGES}
    folders = {reverse("help:page", args=["decisions"]), reverse("examples")}
    assert {target for target in targets if target not in addresses | folders} == set()


def test_a_page_has_its_title_and_text(reader: Client) -> None:
    answer = reader.get("/help/use/sharing/")
    assert answer.status_code == 200
    assert "Sharing, export and import</h1>" in answer.content.decode()
    assert 'id="share-by-a-link"' in answer.content.decode()


def test_the_table_of_contents_and_a_folder_without_one(reader: Client) -> None:
    assert "Set up a workspace" in reader.get("/help/").content.decode()
    assert "0051: The guide is rendered by the product" in reader.get("/help/decisions/").content.decode()


@pytest.mark.parametrize("path", ["nothing/", "use/nothing/", "../README/", "use/../../README/"])
def test_what_there_is_not(reader: Client, path: str) -> None:
    assert reader.get(f"/help/{path}").status_code == 404


def test_nobody_reads_it_without_signing_in(db: None) -> None:
    assert Client().get("/help/").status_code == 302


def test_a_page_comes_in_the_readers_language_where_it_has_that() -> None:
    for page in guide.pages("vi"):
        translated = (guide.DOCS / f"{page.path}.vi.md").exists()
        assert page.language == ("vi" if translated else "en")


def test_each_page_of_use_is_translated() -> None:
    with_pages = {page.path for page in guide.pages("vi") if page.folder == "use" and page.language == "vi"}
    assert {path for path in PAGES if path.startswith("use/")} - with_pages - {guide.PAGES_OF_PRODUCT} == set()


def test_translations_have_the_sections_of_the_original() -> None:
    for page in guide.pages("vi"):
        original = guide.page(page.path, "en")
        assert original is not None
        assert re.findall(r"^#+", page.text, re.M) == re.findall(r"^#+", original.text, re.M), page.path


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("restore a backup", "operate/backup"),
        ("connect ollama", "admin/models"),
        ("own models group", "admin/groups"),
        ("stream python", "api/openai"),
        ("add language", "develop/adding"),
        ("upgrad", "operate/upgrading"),
        ("LIMITS money", "admin/limits"),
    ],
)
def test_a_question_finds_its_page(query: str, place: str) -> None:
    assert place in [section.place.path for section in search.find(query, "en")[:4]]


def test_words_are_found_without_their_accents() -> None:
    hits = search.find("du an tep", "vi")
    assert "use/files-and-projects" in [section.place.path for section in hits]


def test_nothing_is_found_without_words(reader: Client) -> None:
    assert search.find("…", "en") == []
    assert "Nothing in the guide has all of these words" in reader.get("/help/?q=zzzz").content.decode()


def test_a_hit_leads_to_its_section(reader: Client) -> None:
    assert "/help/use/sharing/#share-by-a-link" in reader.get("/help/?q=link+password").content.decode()


def test_each_page_of_the_product_leads_to_its_part(reader: Client) -> None:
    assert 'href="/help/use/settings/#preferences"' in reader.get("/settings/").content.decode()
    assert 'href="/help/use/files-and-projects/#projects"' in reader.get("/projects/").content.decode()


def test_anchors_are_those_of_github() -> None:
    assert anchor_of("Is it well?") == "is-it-well"
    assert anchor_of("`{{name}}` and more, too") == "name-and-more-too"


def test_links_out_of_the_guide_are_shown_as_text() -> None:
    page = guide.GuidePage("use/x", "en", "X", "# X\n\n[Code](../../README.md), [there](https://example.org)\n")
    with translation.override("en"):
        assert str(render(page)).count("href") == 1
