"""Every word of the product is in the catalogue of each language, translated, with the same fields in it."""

import re
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest
from django.conf import settings
from django.test import Client
from django.utils.translation import deactivate, ngettext, override

from accounts.models import User
from config import apps
from scripts import messages

LANGUAGES = [code for code, _name in settings.LANGUAGES if code != settings.LANGUAGE_CODE]
FIELD = re.compile(r"%\(\w+\)[sd]|\{\w+\}|</?\w+>")
# Names, keys and examples that are the same in every language.
SAME = {"Glasshouse", "Daily_chat.json", "Daily_summary.json", "https://example.org/hooks/glasshouse", ""}


@pytest.fixture(autouse=True)
def _english_afterwards() -> Iterator[None]:
    """Restore English, since a request leaves its language active."""
    yield
    deactivate()


@pytest.fixture(params=LANGUAGES)
def entries(request: pytest.FixtureRequest) -> list[polib.POEntry]:
    (source,) = (path for path in apps.sources() if path.parents[1].name == request.param)
    return list(polib.pofile(str(source)))


def test_the_catalogues_have_every_message_of_the_product_and_no_other(entries: list[polib.POEntry]) -> None:
    catalogued, expected = {messages.key(entry) for entry in entries}, set(messages.all_messages())
    assert expected - catalogued == set(), "run make messages, then translate what is new"
    assert catalogued - expected == set(), "run make messages"


def test_every_message_is_translated(entries: list[polib.POEntry]) -> None:
    assert [entry.msgid for entry in entries if not entry.translated() or entry.fuzzy] == []


def test_translations_have_the_fields_of_their_messages(entries: list[polib.POEntry]) -> None:
    for entry in entries:
        for translation in entry.msgstr_plural.values() or [entry.msgstr]:
            assert set(FIELD.findall(translation)) == set(FIELD.findall(entry.msgid_plural or entry.msgid)), entry.msgid
            assert translation[:1].isspace() == entry.msgid[:1].isspace(), entry.msgid


def bare_words(path: Path) -> Iterator[str]:
    """Yield the untranslated words of a template: text and attributes, without tags of Django and HTML."""
    source = re.sub(r"{#.*?#}|{% blocktranslate.*?endblocktranslate %}", "", path.read_text(), flags=re.S)
    source = re.sub(r"{% block (\w+) %}\s*(app|shared|plain)\s*{% endblock \1 %}", "", source)
    source = re.sub(r'<span class="material-symbols-outlined[^>]*>\w+</span>', "", source)  # the name of a picture
    source = re.sub(r"{%.*?%}|{{.*?}}|<(code|kbd|script)\b.*?</\1>|&\w+;", "", source, flags=re.S)
    yield from re.findall(r'(?:aria-label|title|placeholder|alt)="([^"]*[A-Za-z][^"]*)"', source)
    text = re.sub(r"<[^>]*>", "\n", source)
    yield from (line.strip() for line in text.splitlines() if re.search("[A-Za-z]{2}", line))


def test_no_template_shows_words_that_cannot_be_translated() -> None:
    pages = [path for path in (settings.BASE_DIR / "templates").rglob("*.html") if "admin" not in path.parts]
    shown = {path.name: {words.strip(" ·") for words in bare_words(path)} - SAME for path in pages}
    assert {name: words for name, words in shown.items() if words} == {}


def test_numbers_have_the_form_of_their_language() -> None:
    one, many = "%(count)s old message summarised", "%(count)s old messages summarised"
    with override("vi"):
        assert {ngettext(one, many, count) for count in (1, 2, 5)} == {"%(count)s tin nhắn cũ được tóm tắt"}
    with override("en"):
        assert [ngettext(one, many, count) for count in (1, 2)] == [one, many]


def test_a_catalogue_is_compiled_when_its_source_changes(tmp_path: Path, settings: object) -> None:
    settings.LOCALE_PATHS = [tmp_path]  # type: ignore[attr-defined]  # pytest-django's
    apps.compile_changed()
    compiled = tmp_path / "vi" / "LC_MESSAGES" / "django.mo"
    first = compiled.stat().st_ino
    apps.compile_changed()
    assert compiled.stat().st_ino == first
    compiled.write_bytes(b"an earlier release's")
    apps.compile_changed()
    assert len(polib.mofile(str(compiled))) > 500


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/", "/files/", "/projects/", "/personas/", "/tasks/", "/settings/", "/search/"])
def test_pages_are_in_the_language_that_was_chosen(client: Client, path: str) -> None:
    person = User.objects.create_user("lan", password="x", language="vi")
    client.force_login(person)
    page = client.get(path, headers={"Accept-Language": "en"}).content.decode()
    assert '<html lang="vi"' in page
    assert "Cuộc trò chuyện mới" in page
    assert "New conversation" not in page


@pytest.mark.django_db
def test_problems_of_the_api_follow_the_language_of_the_request(client: Client) -> None:
    client.force_login(User.objects.create_user("lan", password="x"))

    def refused(language: str) -> dict[str, str]:
        answer: dict[str, str] = client.get("/api/v1/nowhere/", headers={"Accept-Language": language}).json()
        return answer

    problem = refused("vi")
    assert (problem["title"], problem["code"]) == ("Không tìm thấy", refused("en")["code"])
    assert problem["detail"] == "Ở địa chỉ này không có gì. API được mô tả tại /api/docs/."
    assert refused("en")["detail"] == "There is nothing at this address. The API is described at /api/docs/."
