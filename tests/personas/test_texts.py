"""The product's texts for models: the rules for replacements, and the prompts that get them."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from core.errors import ProductError
from personas.models import PromptText
from personas.services import activate_prompt, rules_at, save_text, texts_from_report, use_built_in_text
from personas.texts import BUILT_IN, GROUPS, TEXTS, Texts, TextVersion, check_text
from tests.personas.programs import Program
from workspace.models import WorkspaceVersion

CITATIONS = "prompt-texts/citations/"


def test_every_built_in_text_keeps_its_own_rules_and_has_a_name_of_its_own() -> None:
    for name, text in TEXTS.items():
        assert check_text(name, text.built_in) == text.built_in and text.group in GROUPS and text.purpose, name
    assert len({(text.group, text.title) for text in TEXTS.values()}) == len(TEXTS)


@pytest.mark.parametrize(
    ("name", "text", "code", "sentence"),
    [
        ("title", " \r\n ", "empty_prompt", "“Title of a conversation” cannot be empty."),
        ("title", "x" * 4_001, "prompt_too_long", "The text has 4,001 characters"),
        ("run_item", "Do {item}.", "placeholder_missing", "The text lacks {code}, which stands for its code with @"),
        ("run_item", "Do {code} {item} {when}.", "placeholder_unknown", "the placeholder {when}. Its placeholders are"),
        ("citations", "Like [{number}].", "placeholder_unknown", "It has no placeholders, so remove the braces."),
    ],
)
def test_what_cannot_be_sent_is_refused_with_what_is_wrong(name: str, text: str, code: str, sentence: str) -> None:
    with pytest.raises(ProductError) as refused:
        check_text(name, text)
    assert refused.value.code == code and sentence in refused.value.detail


def test_a_text_is_kept_as_models_read_it() -> None:
    assert check_text("citations", "\r\nCite.\r\nAlways.\r") == "Cite.\nAlways."
    assert check_text("citations", "  ") == ""  # which makes sense: then nothing is said of citing
    assert (
        check_text("title", 'Answer as {"title": …}.') == 'Answer as {"title": …}.'
    )  # braces of other kinds are words


def test_what_stands_in_a_placeholders_place_is_not_looked_at_again() -> None:
    texts = Texts({"run_item": TextVersion(1, "{code}: {item}")})
    assert texts.fill("run_item", code="@A", item="{code} {unknown}") == "@A: {code} {unknown}"
    assert texts["title"] == TEXTS["title"].built_in  # whatever an upgrade makes of it


@pytest.mark.django_db
def test_a_version_holds_at_once_and_the_built_in_text_comes_back(admin_user: User) -> None:
    assert rules_at().texts == BUILT_IN
    first = save_text(user=admin_user, name="citations", text="Cite A.")
    save_text(user=admin_user, name="title", text="Be short.")
    second = save_text(user=admin_user, name="citations", text="Cite B.")
    assert (first.version, second.version, second.token_count) == (1, 2, 4)
    texts = rules_at().texts
    assert (texts["citations"], texts["title"], texts["day"]) == ("Cite B.", "Be short.", TEXTS["day"].built_in)
    assert texts.versions() == {"citations": "2"}  # no title stands in a prompt
    activate_prompt(user=admin_user, prompt=first)
    assert rules_at().texts["citations"] == "Cite A."
    use_built_in_text(user=admin_user, name="citations")
    assert rules_at().texts.own.keys() == {"title"} and PromptText.objects.count() == 3
    assert texts_from_report({"citations": "2", "persona": "2"})["citations"] == "Cite B."
    assert texts_from_report({"persona": "2"}) is BUILT_IN


@pytest.mark.django_db
def test_what_nobody_has_changed_is_not_read_again(admin_user: User) -> None:
    save_text(user=admin_user, name="citations", text="Cite A.")
    version = WorkspaceVersion.objects.get().version
    with CaptureQueriesContext(connection) as queries:
        rules_at(version), rules_at(version)
    assert sum("personas_prompttext" in each["sql"] for each in queries) == 1


@pytest.mark.django_db
def test_a_text_is_written_activated_and_brought_back_by_programs(admin: Program) -> None:
    listed = {each["name"]: each for each in admin.get("prompt-texts/")["results"]}
    assert list(listed) == list(TEXTS)
    assert listed["run_item"]["placeholders"][0] == {
        "name": "code", "meaning": "its code with @; a message with the code shows it to the model", "needed": True,
    }  # fmt: skip
    built_in = admin.ask("GET", CITATIONS)
    assert (built_in["ETag"], built_in.json()["version"]) == ('"0"', None)
    response = admin.ask("POST", f"{CITATIONS}versions/", {"text": "Cite A.", "note": "shorter"}, built_in["ETag"])
    assert (response["ETag"], response.json()["tokens"], response.json()["active"]) == ('"1"', 4, True)
    draft = admin.post(f"{CITATIONS}versions/", {"text": "", "activate": False})
    assert (draft["version"], draft["active"]) == (2, False)
    lost = admin.post(f"{CITATIONS}versions/", {"text": "Lost."}, expect=412, match=built_in["ETag"])
    assert lost["code"] == "changed_meanwhile"
    assert [each["version"] for each in admin.get(f"{CITATIONS}versions/")["results"]] == [2, 1]
    admin.post(f"{CITATIONS}activate/", {"version": None}, expect=412, match='"7"')
    assert admin.post(f"{CITATIONS}activate/", {"version": 2}, expect=200)["text"] == ""
    assert admin.post(f"{CITATIONS}activate/", {"version": None}, expect=200)["text"] == TEXTS["citations"].built_in


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("run_item/versions/", {"text": "Do {item}."}, 400, "placeholder_missing"),
        ("run_item/versions/", {"words": "x"}, 400, "invalid"),
        ("nothing/versions/", {"text": "x"}, 404, "not_found"),
        ("title/activate/", {"version": 9}, 404, "not_found"),
        ("title/activate/", {"version": 10**20}, 404, "not_found"),
        ("title/activate/", {}, 400, "invalid"),
    ],
)
def test_what_programs_send_wrong_is_refused(
    admin: Program, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    assert admin.post(f"prompt-texts/{path}", body, expect=status)["code"] == code
    assert not PromptText.objects.exists()


@pytest.mark.django_db
def test_texts_are_for_whoever_has_the_right(olga: Program) -> None:
    User.objects.filter(pk=olga.user.pk).update(is_staff=True)
    clerk = Program(User.objects.get(pk=olga.user.pk), ["admin"])
    assert clerk.get(CITATIONS, expect=403)["code"] == "right_missing"
    olga.user.user_permissions.add(Permission.objects.get(codename="view_prompttext"))
    assert clerk.get(CITATIONS)["version"] is None
    assert "add_prompttext" in clerk.post(f"{CITATIONS}versions/", {"text": "x"}, expect=403)["detail"]
    assert "change_prompttext" in clerk.post(f"{CITATIONS}activate/", {"version": None}, expect=403)["detail"]
    assert olga.get(CITATIONS, expect=403)["code"] == "missing_scope"
