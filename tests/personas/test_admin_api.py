"""API of reminders, budget profiles, system prompts and models."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission

from accounts.models import User
from llm.models import Model
from personas.models import BudgetProfile, Persona, Reminder, SystemPrompt
from tests.personas.programs import Program, create_persona, wrong


def test_everywhere_is_for_administrators_and_a_persona_for_its_owner(
    olga: Program, otto: Program, admin: Program
) -> None:
    everywhere = admin.post("reminders/", {"text": "Be kind."})
    assert (everywhere["scope"], everywhere["enabled"], everywhere["personas"]) == ("everywhere", True, [])
    persona = create_persona(olga)
    own = olga.post("reminders/", {"text": "Cite.", "persona": persona})
    assert (own["scope"], own["personas"]) == ("persona", [persona])
    assert olga.get(f"personas/{persona}/")["reminder"] == "Cite."
    assert [each["text"] for each in olga.get("reminders/")["results"]] == ["Be kind.", "Cite."]
    assert [each["text"] for each in otto.get("reminders/")["results"]] == ["Be kind."]
    assert olga.patch(f"reminders/{own['id']}/", {"enabled": False})["enabled"] is False
    assert olga.get(f"personas/{persona}/")["reminder"] == ""
    olga.delete(f"reminders/{own['id']}/")
    assert Reminder.objects.get().text == "Be kind."


def test_nobody_reminds_where_they_have_no_say(olga: Program, otto: Program, admin: Program) -> None:
    everywhere = admin.post("reminders/", {"text": "Be kind."})["id"]
    shared = create_persona(olga, visibility="workspace", reminder="Cite.")
    own = olga.get("reminders/")["results"][1]["id"]
    assert otto.post("reminders/", {"text": "Shout."}, expect=403)["code"] == "missing_scope"
    both = Program(otto.user, ["chat", "admin"])
    assert both.post("reminders/", {"text": "Shout."}, expect=403)["code"] == "staff_only"
    assert both.post("reminders/", {"text": "Shout.", "persona": shared}, expect=403)["code"] == "not_owner"
    for pk in (everywhere, own):
        for method in ("PATCH", "DELETE"):
            assert both.ask(method, f"reminders/{pk}/", {"text": "Shout."}).status_code == 403
    less = Program(admin.user, ["chat"])
    assert less.patch(f"reminders/{everywhere}/", {"text": "Shout."}, expect=403)["code"] == "missing_scope"
    assert sorted(Reminder.objects.values_list("text", flat=True)) == ["Be kind.", "Cite."]


def test_a_reminder_that_two_people_use_is_changed_by_neither(olga: Program, otto: Program) -> None:
    hers, his = create_persona(olga, reminder="Cite."), create_persona(otto)
    reminder = Reminder.objects.get()
    Persona.objects.get(pk=his).reminders.add(reminder)
    assert otto.get(f"reminders/{reminder.pk}/")["personas"] == [his]
    otto.patch(f"reminders/{reminder.pk}/", {"text": "Shout."}, expect=404)
    assert olga.get(f"personas/{hers}/")["reminder"] == "Cite."


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"text": ""}, "text"),
        ({"text": "x", "scope": "persona"}, "persona"),
        ({"text": "x", "scope": "project"}, "scope"),
        ({"text": "x", "personas": []}, "personas"),
    ],
)
def test_a_reminder_that_cannot_be_is_refused(admin: Program, body: dict[str, Any], field: str) -> None:
    assert field in wrong(admin.post("reminders/", body, expect=400))


def test_a_reminder_stays_whose_it_is(admin: Program) -> None:
    persona = create_persona(admin)
    everywhere = admin.post("reminders/", {"text": "Be kind."})["id"]
    for change in ({"scope": "persona"}, {"persona": persona}):
        refused = admin.patch(f"reminders/{everywhere}/", change, expect=400)
        assert "cannot be changed" in wrong(refused)[next(iter(change))]


def test_budget_profiles_are_read_by_all_and_written_by_administrators(olga: Program, admin: Program) -> None:
    first = admin.post("budget-profiles/", {"name": "Standard", "default": True})
    assert (first["reserved_output"], first["ui_share"], first["default"]) == (1024, "0.500", True)
    second = admin.post("budget-profiles/", {"name": "Small", "window": 4_000, "ui_share": 0.25})
    assert [each["name"] for each in olga.get("budget-profiles/")["results"]] == ["Small", "Standard"]
    where = f"budget-profiles/{second['id']}/"
    assert olga.get(where)["ui_share"] == "0.250"
    for method in ("PATCH", "DELETE"):
        assert olga.ask(method, where, {"name": "Mine"}).status_code == 403
    assert Program(olga.user, ["chat", "admin"]).patch(where, {"name": "Mine"}, expect=403)["code"] == "staff_only"
    admin.patch(where, {"default": True})
    assert admin.get(f"budget-profiles/{first['id']}/")["default"] is False
    assert admin.delete(where, expect=409)["code"] == "default_profile"
    admin.delete(f"budget-profiles/{first['id']}/")
    assert BudgetProfile.objects.get().name == "Small"


def test_an_administrator_may_no_more_over_the_api_than_in_the_admin(olga: Program, admin: Program) -> None:
    profile = admin.post("budget-profiles/", {"name": "Standard", "default": True})["id"]
    where, change = f"budget-profiles/{profile}/", {"name": "Mine"}
    User.objects.filter(pk=olga.user.pk).update(is_staff=True)
    clerk = Program(User.objects.get(pk=olga.user.pk), ["chat", "admin"])
    refused = clerk.patch(where, change, expect=403)
    assert (refused["code"], "view_budgetprofile" in refused["detail"]) == ("right_missing", True)
    olga.user.user_permissions.add(Permission.objects.get(codename="view_budgetprofile"))
    assert "change_budgetprofile" in clerk.patch(where, change, expect=403)["detail"]
    assert clerk.get("system-prompts/", expect=403)["code"] == "right_missing"
    olga.user.user_permissions.add(Permission.objects.get(codename="change_budgetprofile"))
    assert clerk.patch(where, change)["name"] == "Mine"
    assert "add_budgetprofile" in clerk.post("budget-profiles/", {"name": "Other"}, expect=403)["detail"]
    assert "delete_budgetprofile" in clerk.delete(where, expect=403)["detail"]


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"window": 1064}, "window", "must be above 1,064 tokens, which are kept free"),
        ({"ceiling": 3000}, "floor", "Enter both a ceiling and a floor"),
        ({"floor_share": "0.65"}, "floor_share", "below the ceiling's share"),
        ({"ui_share": 1.5}, "ui_share", "less than or equal to 1"),
        ({"reserved_output": -1}, "reserved_output", "greater than or equal to 0"),
        ({"policy": "newest"}, "policy", "not a valid choice"),
        ({"reserve": 1}, "reserve", "There is no such field"),
        ({"default": False}, "default", "Make another profile the default"),
    ],
)
def test_a_profile_that_cannot_work_is_refused_by_its_field(
    admin: Program, changes: dict[str, Any], field: str, sentence: str
) -> None:
    pk = admin.post("budget-profiles/", {"name": "Standard", "default": True})["id"]
    before = admin.get(f"budget-profiles/{pk}/")
    assert sentence in wrong(admin.patch(f"budget-profiles/{pk}/", changes, expect=400))[field]
    assert admin.get(f"budget-profiles/{pk}/") == before


def test_two_profiles_do_not_share_a_name(admin: Program) -> None:
    admin.post("budget-profiles/", {"name": "Standard"})
    assert "name" in wrong(admin.post("budget-profiles/", {"name": "Standard"}, expect=400))


def test_a_system_prompt_is_written_activated_and_rolled_back(admin: Program) -> None:
    admin.get("system-prompts/active/", expect=404)
    first = admin.post("system-prompts/", {"text": "One.", "note": "a start"})
    assert (first["version"], first["active"], first["tokens"]) == (1, True, 2)
    admin.post("system-prompts/", {"text": "Two."})
    draft = admin.post("system-prompts/", {"text": "Three.", "activate": False})
    assert draft["active"] is False
    assert admin.get("system-prompts/active/")["text"] == "Two."
    assert [each["version"] for each in admin.get("system-prompts/")["results"]] == [3, 2, 1]
    assert admin.post(f"system-prompts/{first['id']}/activate/", expect=200)["active"] is True
    assert SystemPrompt.objects.get(active=True).text == "One."
    assert admin.post("system-prompts/", {"text": " "}, expect=400)["code"] == "empty_prompt"
    for method in ("PATCH", "DELETE"):
        assert admin.ask(method, f"system-prompts/{first['id']}/", {"text": "Other."}).status_code == 405


def test_a_prompt_based_on_one_that_is_no_more_active_is_refused(admin: Program) -> None:
    first = admin.ask("POST", "system-prompts/", {"text": "One."})
    tag, pk = first["ETag"], first.json()["id"]
    assert admin.ask("GET", "system-prompts/active/")["ETag"] == tag
    second = admin.ask("POST", "system-prompts/", {"text": "Two."}, match=tag)
    assert second.status_code == 201
    refused = admin.post("system-prompts/", {"text": "Lost."}, expect=412, match=tag)
    assert refused["code"] == "changed_meanwhile"
    admin.post(f"system-prompts/{pk}/activate/", expect=412, match=tag)
    assert SystemPrompt.objects.get(active=True).text == "Two."
    admin.post(f"system-prompts/{pk}/activate/", expect=200, match=second["ETag"])
    assert SystemPrompt.objects.count() == 2


def test_system_prompts_are_for_administrators_alone(olga: Program, admin: Program) -> None:
    pk = admin.post("system-prompts/", {"text": "One."})["id"]
    for program in (olga, Program(olga.user, ["chat", "admin"]), Program(admin.user, ["chat"])):
        for path in ("system-prompts/", f"system-prompts/{pk}/", "system-prompts/active/"):
            program.get(path, expect=403)
        program.post("system-prompts/", {"text": "Mine."}, expect=403)
    assert SystemPrompt.objects.count() == 1


def test_models_are_listed_with_what_they_can_and_without_their_keys(olga: Program, model: Model) -> None:
    Model.objects.create(provider=model.provider, name="off", enabled=False)
    Model.objects.filter(pk=model.pk).update(learnt_window=6_000)
    response = olga.ask("GET", "models/")
    expected = {
        "id": str(model.pk),
        "name": "m",
        "label": "m",
        "description": "",
        "icon": "",
        "colour": "",
        "order": 100,
        "hidden": False,
        "favourite": False,
        "provider": "P",
        "window": 6_000,
        "max_output": None,
        "abilities": {
            "vision": False,
            "tools": True,
            "reasoning": False,
            "several_system_messages": True,
            "efforts": [],
        },
        "exact": True,
        "fallback": None,
        "default": False,
        "retires_on": None,
    }
    assert response.json()["results"] == [expected]
    assert "sk-never-shown" not in response.content.decode()
    assert "127.0.0.1" not in response.content.decode()
    assert olga.get(f"models/{model.pk}/") == expected
    olga.post("models/", {"name": "x"}, expect=405)
