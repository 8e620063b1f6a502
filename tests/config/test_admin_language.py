"""No page of the admin shows English to a person with another language.

Each page is opened in English and in Vietnamese. A text that is the same in both, or has an English word, is not
translated. The tests walk every address of the admin, so a new page is covered when it is added.
"""

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser

import pytest
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import CharField, JSONField, Model, TextField
from django.test import Client

from accounts.models import User
from chat.models import Message
from tests.config.household import Household, content, signed_in

# Words that Vietnamese does not have, not even as syllables without marks.
ENGLISH = re.compile(r"\b(the|of|and|with|for|is|are|was|not|this|by|to|from|its|at|it|has|have|who|what)\b", re.I)
LETTERS = re.compile(r"[A-Za-z]{2}")
# The same in both languages: names, what is typed or sent as it stands, and words that Vietnamese has taken over.
SAME = re.compile(
    r"Glasshouse|JSON lines|Anthropic|Ollama|OpenAI|Brave Search|Streamable HTTP|API|URL|CSV|HTTPS|Python"
    r"|Text Embeddings Inference"
    r"|Redis|Broker|Worker|PostgreSQL|pgvector|Django|token|prompt|webhook|web|id|sha256|esc|byte|kB"
    r"|English|Tiếng Việt|UTC|chat|files|projects|tasks|search|open_url|web_search|file\.ready|user|simple|answer"
    r"|UTF-8|username|email|name|Earlier|This month|Today|Now"  # the headings by which summaries are read
    r"|cl100k_base|o200k_base|GPT|citations|none|standard|seccomp|landlock|testserver|redis\+socket|utf|log"
)
# What the rows of the test are called, what is quoted, such as what a provider said, ids, addresses, and the audit's
# codes, such as `person.changed`.
DATA = re.compile(
    r"“[^”]*”|access-\w+|[0-9a-f]{24,}|[0-9a-f]{8}-[0-9a-f-]{27}|https?://\S+|/\S*/\S+|words-that-\S+|\S+@\S+"
    r"|[a-z_]+\.[a-z_]+( notebook)?|\b[a-z][a-z0-9]*(_[a-z0-9]+)+\b|\{.*\}",
    re.IGNORECASE,
)
OWN = {
    "Be kind.",
    "Be brief.",
    "Be short.",
    "Cite.",
    "notebook",
    "Notebook",
    "Passkey",
    "gone",
    "somebody",
    "bad.example",
    "m",
    "v1",
    "Nghĩa của “This month”",
}
FREE = (CharField, TextField, JSONField)
BETWEEN = re.compile(r": | · |, ")  # two values in one text, such as a provider and its model
SHOWN = {"example", "words"}  # classes of what a model gets, which is sent as it stands
SILENT = {"script", "style", "code", "pre", "svg", "textarea"}
SPOKEN = ("aria-label", "title", "placeholder", "alt", "data-label")


class Words(HTMLParser):
    """Every text of a page, and every attribute that is read out or shown."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        classes = set(attributes.get("class", "").split())
        if self.silent:
            self.silent += [tag] if tag == self.silent[0] else []
        elif tag in SILENT or classes & SHOWN or "material-symbols-outlined" in classes:
            self.silent = [tag]
        else:
            self.texts += [attributes[name] for name in SPOKEN if attributes.get(name)]
            self.texts += [attributes["value"]] if tag == "input" and attributes.get("type") == "submit" else []

    def handle_endtag(self, tag: str) -> None:
        if self.silent and self.silent[-1] == tag:
            self.silent.pop()

    def handle_data(self, data: str) -> None:
        if not self.silent and (words := " ".join(data.split())):
            self.texts.append(words)


def words(page: str) -> list[str]:
    reader = Words()
    reader.feed(page)
    return reader.texts


def without_common_words(words: str) -> str:
    """Return the text without words that are the same in every language."""
    return re.sub(rf"\b(?:{SAME.pattern})s?\b", "", DATA.sub("", words), flags=re.I)


def stored() -> set[str]:
    """Return the texts of people and other tests: every value of a field without choices."""
    stored_texts: set[str] = set()
    models: list[type[Model]] = [*admin.site._registry, LogEntry, Message]
    for model in models:
        fields = [each.attname for each in model._meta.concrete_fields if isinstance(each, FREE) and not each.choices]
        for row in model._base_manager.values_list(*fields).distinct() if fields else ():
            stored_texts |= {" ".join(text.split()) for value in row for text in texts(value)}
    return stored_texts


def texts(value: object) -> Iterator[str]:
    """Yield the texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(each)


def left_over(data: set[str], english: str, vietnamese: str) -> Iterator[str]:
    english_words = set(words(english))
    for each in words(vietnamese):
        own = without_common_words(each)
        if not LETTERS.search(own) or each in OWN or each in data or data.issuperset(BETWEEN.split(each)):
            continue
        if each in english_words or ENGLISH.search(own):
            yield each


@pytest.fixture
def reader(people: Callable[..., User]) -> tuple[User, Client]:
    person = people(is_staff=True, is_superuser=True)
    return person, signed_in(person)


@pytest.mark.slow
def test_no_page_shows_english_to_who_reads_vietnamese(household: Household, reader: tuple[User, Client]) -> None:
    person, client = reader
    for row in household.rows:
        kind = ContentType.objects.get_for_model(row)
        entry = {"content_type": kind, "object_id": row.pk, "action_flag": CHANGE}
        LogEntry.objects.create(
            user=person, change_message='[{"changed": {"fields": ["Default order of the prompt"]}}]', **entry
        )
    urls = [each.url for each in household.addresses() if each.admin]
    data = stored()
    wrong: dict[str, str] = {}
    for url in dict.fromkeys(urls):
        pages = []
        for language in ("en", "vi"):
            User.objects.filter(pk=person.pk).update(language=language)
            answer = client.get(url)
            if answer.status_code == 200 and "html" in answer.headers.get("Content-Type", ""):
                pages.append(content(answer))
        wrong |= {each: url for each in (left_over(data, *pages) if pages else ()) if each not in wrong}
    assert not wrong, "\n".join(f"{url}: {each}" for each, url in wrong.items())
