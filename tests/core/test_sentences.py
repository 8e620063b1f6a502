"""Sentences are stored with their values, and are formatted and translated when they are read."""

import ast
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from django.conf import settings
from django.utils.translation import deactivate, override

from accounts.models import User
from accounts.models.webhook import Webhook
from chat.models import SummaryJob
from core.errors import MAX_DETAIL_LENGTH, NotFound, ProductError
from core.sentences import NO_SENTENCE, Sentence
from files.models import File
from scripts.messages import APPS, KEYWORDS

MANY = "“{name}” could not be read: {error} Remove it from the message."
EMPTY = Sentence("There is nothing in it.")


@pytest.fixture(autouse=True)
def _english_afterwards() -> Iterator[None]:
    yield
    deactivate()


def test_a_sentence_is_read_in_the_language_that_is_active_and_its_english_stays() -> None:
    error = NotFound("project")
    with override("vi"):
        assert str(error.sentence) == "Không có dự án nào như vậy, hoặc không phải của bạn."
        assert error.detail == error.sentence.english == "There is no such project, or it is not yours."
    with override("en"):
        assert str(error.sentence) == error.detail


def test_a_value_that_is_a_sentence_is_translated_and_a_name_is_not() -> None:
    sentence = Sentence(MANY, name="There is nothing in it.", error=EMPTY)
    with override("vi"):
        vietnamese = "Không đọc được “There is nothing in it.”: Trong tệp không có gì. Hãy bỏ nó khỏi tin nhắn."
        assert str(sentence) == vietnamese


def test_numbers_are_written_as_the_readers_language_does() -> None:
    sentence = Sentence("{number} of {most} tokens", number=1_234_567, most=Decimal("1234.5"))
    assert sentence.english == "1,234,567 of 1,234.5 tokens"
    with override("vi"):
        assert str(sentence) == "1.234.567 trong 1.234,5 token"


@pytest.mark.parametrize(
    "sentence",
    [
        NO_SENTENCE,
        EMPTY,
        Sentence('{"text": "somebody\'s own"}'),
        Sentence(MANY, name="a {name} and {{braces}}\n", error=EMPTY),
        Sentence("{number} of {most} tokens", number=3, most=Decimal("0.10")),
        Sentence.verbatim('{"text": "of a provider", "values": {}}'),
    ],
)
def test_what_is_stored_is_read_again_as_it_was(sentence: Sentence) -> None:
    assert Sentence.load(sentence.dump()) == sentence
    assert "\n" not in sentence.dump()


@pytest.mark.parametrize(
    "text", ["Plain text of a row of before.", '{"text": 1', '{"text": "a"}', '{"text": "a", "values": 3}']
)
def test_any_other_text_is_a_sentence_as_it_stands(text: str) -> None:
    assert Sentence.load(text).english == text


def test_a_stored_template_cannot_reach_into_its_values() -> None:
    stored = '{"text": "{name.__class__} {name:>9999} {name} {other}", "values": {"name": "x"}}'
    assert Sentence.load(stored).english == "{name.__class__} {name:>9999} x {other}"


def test_braces_in_a_value_stay_and_doubled_ones_of_a_template_are_one() -> None:
    assert Sentence("{{{name}}}", name="{most}").english == "{{most}}"


def test_a_long_value_is_shortened_and_the_words_around_it_stay() -> None:
    error = ProductError("file_failed", Sentence(MANY, name="x" * 1_000_000, error=EMPTY))
    assert len(error.detail) <= MAX_DETAIL_LENGTH
    assert error.detail.startswith("“xxx") and "…" in error.detail
    assert error.detail.endswith("” could not be read: There is nothing in it. Remove it from the message.")


@pytest.mark.django_db
def test_a_stored_problem_reads_right_to_each_reader() -> None:
    owner = User.objects.create_user("lan", password="x")
    note = Sentence("{number} of {most} tokens", number=5_000, most=10_000)
    webhook = Webhook.objects.create(owner=owner, url="https://example.org/", events=[], note=note)
    again = Webhook.objects.get(pk=webhook.pk)
    assert again.note == webhook.note == note
    with override("vi"):
        assert str(again.note) == "5.000 trong 10.000 token"
    with override("en"):
        assert str(again.note) == "5,000 of 10,000 tokens"
    Webhook.objects.filter(pk=webhook.pk).update(note="")
    assert Webhook.objects.filter(note="").values_list("note", flat=True).get() == NO_SENTENCE


@pytest.mark.django_db
def test_text_that_an_earlier_version_stored_is_shown_as_it_is() -> None:
    assert SummaryJob(detail="It has 3 words.").detail.english == "It has 3 words."
    file = File(error="Pictures that were left out: 3.\nThere is nothing in it.")
    with override("vi"):
        assert [str(note) for note in file.notes] == ["Pictures that were left out: 3.", "Trong tệp không có gì."]


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Yield the place, the called name and the node of each call in the product."""
    for path in (
        path for app in APPS for path in (Path(settings.BASE_DIR) / app).rglob("*.py") if "tests" not in path.parts
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield f"{path.name}:{node.lineno}", ast.unparse(node.func), node


def sentences_raised() -> Iterator[tuple[str, str, ast.expr]]:
    """Yield the place, the called name and the sentence of each raised error and of each `Sentence`."""
    position = {"Sentence": 0, "NotFound": 0, "ProductError": 1, "ModelError": 1, "ContextError": 1}
    for place, called, node in calls():
        if called in position and len(node.args) > position[called]:
            yield place, called, node.args[position[called]]


def subclasses(kind: type[Exception]) -> set[str]:
    return {kind.__name__}.union(*(subclasses(each) for each in kind.__subclasses__()))


def test_no_sentence_is_made_of_pieces() -> None:
    """A sentence with its values in it could be found in no catalogue."""
    composed = (ast.JoinedStr, ast.BinOp)
    pieces = [place for place, _, sentence in sentences_raised() if isinstance(sentence, composed)]
    formatted = [place for place, _, each in sentences_raised() if ".format(" in ast.unparse(each)]
    assert (pieces, formatted) == ([], [])


def test_the_catalogue_gets_the_sentence_of_every_error_that_takes_a_literal() -> None:
    read = {keyword.partition(":")[0] for keyword in KEYWORDS}
    literal = {called for _, called, sentence in sentences_raised() if isinstance(sentence, ast.Constant)}
    assert literal <= read
    own = subclasses(ProductError) - {"ProductError", "NotFound", "ModelError", "ContextError"}
    passes_on = {
        "RunWaits",
        "CannotReplan",
        "BadRequest",
        "LinesRefused",
        "EmbedderUnavailable",
        "DocumentRefused",
        "ProposalRefused",
    }
    assert own <= passes_on | read, "does it pass a Sentence on, or is it a keyword?"


def test_the_values_of_a_sentence_are_the_fields_of_its_template() -> None:
    differing = []
    for place, called, node in calls():
        if called != "Sentence" or not node.args or not isinstance(template := node.args[0], ast.Constant):
            continue
        values = {keyword.arg for keyword in node.keywords}
        fields = set(re.findall(r"\{(\w+)\}", str(template.value).replace("{{", "").replace("}}", "")))
        if values and None not in values and values != fields:
            differing.append((place, fields ^ values))
    assert differing == []
