import re
import threading
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from accounts.models import User
from core.audit.models import Entry
from llm.models import Model, Provider, ToolServer
from personas.models import BudgetProfile, Persona, Reminder, SummaryPrompt, SystemPrompt
from personas.services import activate_prompt, save_prompt, set_default_profile
from tests.llm.misbehaving_server import Misbehaving, tool

ADD = "admin:personas_systemprompt_add"


def prompt_form(text: str, based_on: int, **changes: Any) -> dict[str, Any]:
    return {"text": text, "note": "", "activate": "on", "based_on": based_on} | changes


def active() -> SystemPrompt:
    return SystemPrompt.objects.get(active=True)


def profile_form(**changes: Any) -> dict[str, Any]:
    names = [field.name for field in BudgetProfile._meta.fields if field.name not in ("id", "default")]
    form = {name: getattr(BudgetProfile(), name) for name in names} | {"name": "Mine"} | changes
    return {name: "" if value is None else value for name, value in form.items() if value is not False}


@pytest.mark.django_db
def test_a_saved_prompt_is_the_next_version_and_active(admin_client: Client, admin_user: User) -> None:
    save_prompt(user=None, kind=SystemPrompt, text="One.")
    page = admin_client.get(reverse(ADD)).content.decode()
    assert "One." in page  # it starts from what is active
    admin_client.post(reverse(ADD), prompt_form("Two.", 1, note="shorter"))
    assert (active().version, active().text, active().note, active().author) == (2, "Two.", "shorter", admin_user)


@pytest.mark.django_db
def test_a_draft_is_stored_without_becoming_active(admin_client: Client) -> None:
    save_prompt(user=None, kind=SystemPrompt, text="One.")
    form = prompt_form("Two.", 1)
    del form["activate"]
    admin_client.post(reverse(ADD), form)
    assert active().version == 1
    assert SystemPrompt.objects.count() == 2


@pytest.mark.django_db
def test_an_empty_prompt_is_refused(admin_client: Client) -> None:
    assert "This field is required" in admin_client.post(reverse(ADD), prompt_form("  ", 0)).content.decode()


@pytest.mark.django_db
def test_somebody_elses_change_meanwhile_is_not_overwritten_unseen(admin_client: Client) -> None:
    save_prompt(user=None, kind=SystemPrompt, text="One.")
    save_prompt(kind=SystemPrompt, user=User.objects.create_superuser("other"), text="Two, by another.")
    response = admin_client.post(reverse(ADD), prompt_form("Mine.", 1))
    page = response.content.decode()
    assert "v2 by other became active while you were writing" in page
    assert "Mine." in page
    assert active().version == 2
    admin_client.post(reverse(ADD), prompt_form("Mine.", int(response.context["adminform"].form["based_on"].value())))
    assert (active().version, active().text) == (3, "Mine.")


@pytest.mark.django_db
def test_versions_cannot_be_changed_or_removed(admin_client: Client) -> None:
    prompt = save_prompt(user=None, kind=SystemPrompt, text="One.")
    change = reverse("admin:personas_systemprompt_change", args=[prompt.pk])
    assert admin_client.post(change, {"text": "Other."}).status_code == 403
    assert admin_client.post(reverse("admin:personas_systemprompt_delete", args=[prompt.pk])).status_code == 403
    prompt.refresh_from_db()
    assert prompt.text == "One."


@pytest.mark.django_db
def test_the_summary_prompt_is_a_history_of_its_own(admin_client: Client) -> None:
    save_prompt(user=None, kind=SystemPrompt, text="One.")
    url = reverse("admin:personas_summaryprompt_add")
    assert admin_client.get(url).status_code == 200
    for text in ("Be short.", "Be shorter."):
        admin_client.post(url, prompt_form(text, SummaryPrompt.objects.count()))
    newest = SummaryPrompt.objects.get(active=True)
    assert (newest.version, newest.text) == (2, "Be shorter.")
    assert active().text == "One."
    page = admin_client.get(reverse("admin:personas_summaryprompt_change", args=[newest.pk]))
    assert "Be shorter." in page.content.decode()
    compared = admin_client.get(reverse("admin:personas_summaryprompt_compare"), {"old": 1, "new": 2})
    assert "<ins>shorter</ins>" in compared.content.decode()


@pytest.mark.django_db
def test_an_earlier_version_comes_back(admin_client: Client) -> None:
    first = save_prompt(user=None, kind=SystemPrompt, text="One.")
    save_prompt(user=None, kind=SystemPrompt, text="Two.")
    url = reverse("admin:personas_systemprompt_activate", args=[first.pk])
    admin_client.get(url)
    assert active().version == 2
    admin_client.post(url, {"_form_submitted": "on"})
    assert active().version == 1
    assert SystemPrompt.objects.count() == 2


@pytest.mark.django_db
def test_two_versions_are_compared_word_by_word_and_escaped(admin_client: Client) -> None:
    save_prompt(user=None, kind=SystemPrompt, text="Be brief.\nSame line.\nGone.")
    save_prompt(user=None, kind=SystemPrompt, text="Be <script>kind</script>.\nSame line.")
    page = admin_client.get(reverse("admin:personas_systemprompt_compare"), {"old": 1, "new": 2}).content.decode()
    assert "<del>brief</del>" in page
    assert "<ins>&lt;script&gt;kind&lt;/script&gt;</ins>" in page
    assert "<script>kind" not in page
    assert "<del>Gone.</del>" in page
    assert page.count("Same line.") == 2
    for nonsense in ({"old": "x", "new": "99"}, {}):
        response = admin_client.get(reverse("admin:personas_systemprompt_compare"), nonsense)
        assert "are the same" in response.content.decode()


@pytest.mark.django_db
def test_two_selected_versions_lead_to_their_comparison(admin_client: Client) -> None:
    prompts = [save_prompt(user=None, kind=SystemPrompt, text=text) for text in ("One.", "Two.")]
    form = {"action": "compare_selected", "_selected_action": [str(prompt.pk) for prompt in prompts]}
    response = admin_client.post(reverse("admin:personas_systemprompt_changelist"), form)
    assert response["Location"].endswith("?old=1&new=2")


def test_prompts_saved_at_once_get_versions_of_their_own_and_one_is_active(committed: None) -> None:
    before = SystemPrompt.objects.filter(active=True).first()
    newest = SystemPrompt.objects.order_by("-version").values_list("version", flat=True).first() or 0
    failures: list[Exception] = []
    start = threading.Barrier(4)

    def save(number: int) -> None:
        try:
            start.wait(30)
            save_prompt(user=None, kind=SystemPrompt, text=f"By {number}.")
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    versions = SystemPrompt.objects.filter(version__gt=newest)
    try:
        assert failures == []
        assert sorted(versions.values_list("version", flat=True)) == [newest + number for number in (1, 2, 3, 4)]
        assert active().version == newest + 4
    finally:
        versions.delete()
        if before is not None:
            activate_prompt(prompt=before)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"window": 1064},
            "The window must be above 1,064 tokens, which are kept free for the answer and against counting errors",
        ),
        ({"ceiling": 3000, "floor": 3000}, "The floor must be below the ceiling (3,000)"),
        ({"window": 8000, "ceiling": 6976, "floor": 10}, "Choose a ceiling below 6,976"),
        ({"floor_share": "0.65"}, "The floor&#x27;s share must be below the ceiling&#x27;s share."),
        ({"safety_margin": "1"}, "A margin of the whole window leaves nothing"),
        ({"catch_all_margin": "1"}, "A margin of the whole window leaves nothing"),
        ({"ui_share": "1.001"}, "less than or equal to 1"),
        ({"max_cycles": 0}, "greater than or equal to 1"),
        ({"max_cycles": 21}, "less than or equal to 20"),
        ({"run_max_steps": 0}, "greater than or equal to 1"),
        ({"run_max_tokens": 999}, "greater than or equal to 1000"),
        ({"run_max_minutes": 1_441}, "less than or equal to 1440"),
        ({"reserved_output": -1}, "greater than or equal to 0"),
        ({"ceiling": 3000}, "Enter both a ceiling and a floor, or neither"),
    ],
)
def test_a_profile_that_cannot_work_is_refused_with_its_reason(
    admin_client: Client, changes: dict[str, Any], sentence: str
) -> None:
    response = admin_client.post(reverse("admin:personas_budgetprofile_add"), profile_form(**changes))
    assert sentence in response.content.decode()
    assert not BudgetProfile.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "fields",
    [
        {"max_cycles": 0},
        {"run_max_steps": 0},
        {"window": 1064},
        {"ceiling": 5, "floor": 5},
        {"floor_share": "0.7"},
        {"safety_margin": "1"},
        {"catch_all_margin": "1"},
    ],
)
def test_the_database_refuses_it_too(fields: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        BudgetProfile.objects.create(name="Broken", **fields)


@pytest.mark.django_db
def test_every_number_of_a_profile_can_be_set(admin_client: Client) -> None:
    numbers = {"window": 12_288, "ceiling": 7_800, "floor": 3_000, "keep_recent": 9, "reserved_output": 900}
    more = {"buffer": 41, "message_overhead": 5, "expected_user": 500, "select_margin": 70, "max_cycles": 7}
    more |= {"run_max_steps": 20, "run_max_tokens": 90_000, "run_max_minutes": 30}
    admin_client.post(reverse("admin:personas_budgetprofile_add"), profile_form(**numbers, **more))
    profile = BudgetProfile.objects.get(name="Mine")
    for name, value in (numbers | more).items():
        assert getattr(profile, name) == value
    shown = admin_client.get(reverse("admin:personas_budgetprofile_change", args=[profile.pk])).content.decode()
    for field in BudgetProfile._meta.fields:
        assert field.name in ("id", "default") or f'name="{field.name}"' in shown


@pytest.mark.django_db
def test_the_worked_example_stands_beside_the_fields(admin_client: Client) -> None:
    provider = Provider.objects.create(name="P", base_url="http://127.0.0.1:9")
    Model.objects.create(provider=provider, name="big", context_window=128_000, default=True)
    profile = BudgetProfile.objects.create(name="Standard")
    page = admin_client.get(reverse("admin:personas_budgetprofile_change", args=[profile.pk])).content.decode()
    for number in ("8,000", "5,924", "2,962", "2,887", "128,000", "125,924"):
        assert f"<td>{number}</td>" in page


@pytest.mark.django_db
def test_the_worked_example_follows_the_numbers_being_typed(admin_client: Client) -> None:
    url = reverse("admin:personas_budgetprofile_example")
    changed = admin_client.post(url, profile_form(buffer=140, name="")).content.decode()
    assert "<td>5,824</td>" in changed
    wrong = admin_client.post(url, profile_form(window=100)).content.decode()
    assert "nothing is left for the prompt" in wrong
    assert "<td>" not in wrong
    assert not BudgetProfile.objects.exists()


@pytest.mark.django_db
def test_making_another_profile_the_default_moves_it(admin_client: Client) -> None:
    first = BudgetProfile.objects.create(name="First", default=True)
    second = BudgetProfile.objects.create(name="Second")
    admin_client.post(reverse("admin:personas_budgetprofile_make_default", args=[second.pk]), {"_form_submitted": "on"})
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.default, second.default) == (False, True)


def persona_form(owner: User, **changes: Any) -> dict[str, Any]:
    form = {"name": "Editor", "visibility": "workspace", "date_awareness": "day", "instructions": "Edit."}
    form |= {"shares-TOTAL_FORMS": "0", "shares-INITIAL_FORMS": "0"}
    return form | {"owner": str(owner.pk), "tools": [], "starter_messages": ""} | changes


@pytest.mark.django_db
def test_a_reminder_of_personas_is_saved(admin_client: Client) -> None:
    form = {"text": "Cite clauses.", "scope": "persona", "position": 0, "enabled": "on"}
    admin_client.post(reverse("admin:personas_reminder_add"), form)
    reminder = Reminder.objects.get(text="Cite clauses.")
    assert (reminder.scope, reminder.enabled) == (Reminder.Scope.PERSONA, True)


@pytest.mark.django_db
def test_a_persona_of_the_workspace_is_edited_and_versioned(admin_client: Client, admin_user: User) -> None:
    used = Reminder.objects.create(text="Be kind.", scope=Reminder.Scope.PERSONA)
    lists = {"tools": ["search_files", "open_url"], "starter_messages": "Shorten this, please:\r\nAnd this:"}
    form = persona_form(admin_user, **lists)
    admin_client.post(reverse("admin:personas_persona_add"), form | {"reminders": [str(used.pk)]})
    persona = Persona.objects.get(name="Editor")
    assert persona.owner == admin_user
    assert persona.tools == ["search_files", "open_url"]
    assert persona.starter_messages == ["Shorten this, please:", "And this:"]
    assert list(persona.reminders.all()) == [used]
    change = reverse("admin:personas_persona_change", args=[persona.pk])
    admin_client.post(change, form | {"instructions": "Edit\r\nwell."})
    persona.refresh_from_db()
    assert (persona.version, persona.instructions) == (2, "Edit\nwell.")
    assert not persona.reminders.exists()
    Persona.objects.create(name="Critic", visibility=Persona.Visibility.WORKSPACE)
    for wrong, sentence in (
        ({"tools": ["search_files", "websearch"]}, "There is no tool “websearch”. The tools are: web_search"),
        ({"starter_messages": "Hello\n" * 13}, "Write at most 12 lines"),
        ({"name": "critic"}, "There is a persona called “critic” already."),
        ({"tag": "1-1"}, "Somebody else changed this persona while you were writing."),
    ):
        assert sentence in admin_client.post(change, form | wrong).content.decode()
    persona.refresh_from_db()
    assert (persona.version, persona.tools) == (2, ["search_files", "open_url"])


@pytest.mark.django_db
def test_the_tools_of_a_persona_are_chosen_from_a_list(admin_client: Client, admin_user: User) -> None:
    ToolServer.objects.create(name="mail", base_url="http://127.0.0.1:9/mcp")
    persona = Persona.objects.create(owner=admin_user, name="Clerk", tools=["open_url", "gone__send"])
    change = reverse("admin:personas_persona_change", args=[persona.pk])
    page = admin_client.get(change).content.decode()
    fields = re.findall(r'name="tools"\s+value="(\S+)"[^>]*?(checked)?>', page)
    boxes = {value: bool(ticked) for value, ticked in fields}
    assert boxes == {"web_search": False, "open_url": True, "tasks": False, "mail__*": False, "gone__send": True}
    fragment = admin_client.get(reverse("admin:personas_persona_tools"), {"tools": ["mail__*"]}).content.decode()
    assert "mail__*" in fragment and "checked" in fragment


@pytest.mark.django_db
def test_the_admin_says_that_a_persona_has_too_many_tools(
    admin_client: Client, admin_user: User, model: Model, tmp_path: Path
) -> None:
    server = Misbehaving([*(tool(f"tool{number}") for number in range(129)), tool("broken", {"type": "array"})])
    ToolServer.objects.create(name="big", kind="stdio", command=server.as_process(tmp_path))
    fragment = admin_client.get(reverse("admin:personas_persona_tools"), {"tools": ["big__*"]}).content.decode()
    assert "These are 129 tools of servers" in fragment and "Its input has the type array" in fragment


@pytest.mark.django_db
@pytest.mark.parametrize("way", ["page", "list"])
def test_the_default_profile_stays_until_another_is_the_default(admin_client: Client, way: str) -> None:
    default, other = (BudgetProfile.objects.create(name=name) for name in ("Usual", "Other"))
    set_default_profile(profile=default)
    if way == "page":
        form: dict[str, Any] = {"post": "yes"}
        url = reverse("admin:personas_budgetprofile_delete", args=[default.pk])
    else:
        url = reverse("admin:personas_budgetprofile_changelist")
        form = {"action": "delete_selected", "_selected_action": [str(other.pk), str(default.pk)], "post": "yes"}
    refused = admin_client.post(url, form)
    assert refused.status_code == 409 and "Make another profile the default" in refused.content.decode()
    assert BudgetProfile.objects.filter(pk__in=[default.pk, other.pk]).count() == 2
    set_default_profile(profile=other)
    admin_client.post(reverse("admin:personas_budgetprofile_delete", args=[default.pk]), {"post": "yes"})
    assert not BudgetProfile.objects.filter(pk=default.pk).exists()


@pytest.mark.django_db
def test_whoever_opens_somebodys_private_persona_stands_in_its_history(admin_client: Client, admin_user: User) -> None:
    other = User.objects.create_user("other")
    private = Persona.objects.create(owner=other, name="Diary helper", instructions="private words")
    private.reminders.add(Reminder.objects.create(text="private reminder", scope=Reminder.Scope.PERSONA))
    listed = admin_client.get(reverse("admin:personas_persona_changelist")).content.decode()
    assert "Diary helper" in listed and "private words" not in listed
    for page_name in ("reminder_changelist", "persona_add"):
        assert "private reminder" not in admin_client.get(reverse(f"admin:personas_{page_name}")).content.decode()
    assert not Entry.objects.filter(action="persona.opened").exists()
    page = admin_client.get(reverse("admin:personas_persona_change", args=[private.pk])).content.decode()
    assert "private words" in page and "private reminder" in page
    history = admin_client.get(reverse("admin:personas_persona_history", args=[private.pk])).content.decode()
    assert "persona.opened" in history
    Persona.objects.filter(pk=private.pk).update(visibility=Persona.Visibility.WORKSPACE)
    admin_client.get(reverse("admin:personas_persona_change", args=[private.pk]))
    assert Entry.objects.filter(action="persona.opened").count() == 1  # what everybody sees is nobody's secret


@pytest.mark.django_db
def test_a_persona_becomes_somebody_elses(admin_client: Client, admin_user: User) -> None:
    other, taker = User.objects.create_user("other"), User.objects.create_user("taker")
    left = User.objects.create_user("left", is_active=False)
    persona = Persona.objects.create(owner=other, name="Diary helper")
    Persona.objects.create(owner=taker, name="Helper")
    change = reverse("admin:personas_persona_change", args=[persona.pk])

    def give(to: User, name: str = "Diary helper") -> str:
        form = persona_form(to, name=name, visibility="private")
        return admin_client.post(change, form, follow=True).content.decode()

    assert "“left” is deactivated" in give(left)
    assert "There is a persona called “Helper” already." in give(taker, "Helper")
    give(taker)
    persona.refresh_from_db()
    assert persona.owner == taker


@pytest.mark.django_db
def test_any_version_is_where_the_next_one_may_start(admin_client: Client) -> None:
    first = save_prompt(user=None, kind=SystemPrompt, text="One.")
    save_prompt(user=None, kind=SystemPrompt, text="Two.")
    edit = admin_client.get(reverse("admin:personas_systemprompt_edit", args=[first.pk]))
    form = admin_client.get(edit.headers["Location"]).context["adminform"].form
    assert (form["text"].value(), form["based_on"].value()) == ("One.", 2)
    for unknown in ("7", "x", "9" * 30):
        form = admin_client.get(reverse(ADD), {"from": unknown}).context["adminform"].form
        assert form["based_on"].value() == 2
    assert SystemPrompt.objects.count() == 2


@pytest.mark.django_db
def test_a_prompt_is_counted_while_it_is_written(admin_client: Client, client: Client) -> None:
    page = admin_client.get(reverse(ADD))
    counted = admin_client.post(page.context["count_url"], {"text": "one two three"}).content.decode()
    assert "3" in counted and "tokens" in counted
    assert all("border" in str(page.context["adminform"].form[name]) for name in ("text", "note"))
    assert client.post(page.context["count_url"], {"text": "one"}).status_code == 302
