"""Every act is recorded once it is done: by whom, in which way, from where, and without a secret or anybody's words."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts import people
from accounts.models import User
from accounts.services import create_token
from accounts.webhooks.services import create_webhook
from audit.actions import ACTIONS
from audit.models import Entry
from audit.origin import How, Origin, acting
from chat.conversations.services import purge
from chat.conversations.sharing import Terms, share
from files.models import Embedder
from llm.models import ToolServer, WebAccess, WebSearch
from llm.services import store_model
from llm.tools.services import store_tool_server, store_web_access
from personas.models import BudgetProfile, Persona, Reminder, SummaryPrompt, SystemPrompt
from personas.services import save_prompt, save_text
from projects import services as projects
from tests.audit.world import AGENT, PASSWORD, SECRET, TEXT, World, said
from tests.config.household import session_of

pytestmark = pytest.mark.django_db
Act = Callable[[World], object]
ACTS: list[tuple[str, How, Act]] = []
URL = f"http://127.0.0.1:9/{SECRET}"


@pytest.fixture
def world() -> World:
    admin = User.objects.create_superuser("admin", password=PASSWORD)
    return World(admin, User.objects.create_user("olga", password=PASSWORD))


def act(action: str, how: How) -> Callable[[Act], Act]:
    assert action in ACTIONS

    def decorate(does: Act) -> Act:
        ACTS.append((action, how, does))
        return does

    return decorate


def page(action: str) -> Callable[[Act], Act]:
    return act(action, How.PAGE)


def staff(action: str) -> Callable[[Act], Act]:
    return act(action, How.ADMIN)


def program(action: str) -> Callable[[Act], Act]:
    return act(action, How.API)


# At a page: olga


@page("person.signed_in")
def _(w: World) -> None:
    w.post("/login/", {"username": "olga", "password": PASSWORD}, who=Client(REMOTE_ADDR=AGENT))


@page("person.sign_in_failed")
def _(w: World) -> None:
    w.post("/login/", {"username": "olga", "password": SECRET}, who=Client(REMOTE_ADDR=AGENT))


@page("password.changed")
def _(w: World) -> None:
    w.post("/settings/password/", {"old_password": PASSWORD, "new_password1": SECRET, "new_password2": SECRET})


@page("password.refused")
def _(w: World) -> None:
    w.post("/settings/password/", {"old_password": SECRET, "new_password1": SECRET, "new_password2": SECRET})


@page("password.chosen")
def _(w: World) -> None:
    w.olga.set_unusable_password()
    w.olga.save()
    link = f"{reverse('welcome', args=[w.olga.pk])}?key={people.links.make_token(w.olga)}"
    w.post(link, {"new_password1": SECRET, "new_password2": SECRET}, who=Client(REMOTE_ADDR=AGENT))


@page("token.made")
def _(w: World) -> None:
    form = {"name": "notebook", "scopes": ["chat"], "days": "30", "password": PASSWORD}
    answer = w.post("/settings/tokens/", form)
    assert answer.context["token"] not in said(list(Entry.objects.all()))


@page("token.revoked")
def _(w: World) -> None:
    row, _token = create_token(user=w.olga, name="notebook")
    w.post(f"/settings/tokens/{row.pk}/revoke/")


@page("session.ended")
def _(w: World) -> None:
    w.post(f"/settings/sessions/{session_of(w.olga)}/end/")


@page("person.signed_out_everywhere")
def _(w: World) -> None:
    w.post("/settings/sessions/end/")


@page("conversation.exported")
def _(w: World) -> None:
    assert w.page.get(f"/c/{w.conversation(w.olga).pk}/export.json").status_code == 200


@page("conversation.all_exported")
def _(w: World) -> None:
    assert w.page.get("/export/").status_code == 200


@page("conversation.deleted")
def _(w: World) -> None:
    w.post(f"/c/{w.conversation(w.olga).pk}/delete/")


@page("conversation.restored")
def _(w: World) -> None:
    made = w.conversation(w.olga)
    w.post(f"/c/{made.pk}/delete/")
    w.post(f"/c/{made.pk}/restore/")


@page("share.made")
def _(w: World) -> None:
    w.post(f"/c/{w.conversation(w.olga).pk}/share/", {"password": SECRET})


@page("share.ended")
def _(w: World) -> None:
    made = share(user=w.olga, conversation=w.conversation(w.olga), terms=Terms(password=SECRET))
    w.post(f"/shares/{made.pk}/end/")
    assert made.token not in said(list(Entry.objects.all()))


@page("usage.exported")
def _(w: World) -> None:
    assert w.page.get("/usage.csv").status_code == 200


# With a token: admin


@program("token.made")
def _(w: World) -> None:
    token = w.api("POST", "tokens/", {"name": "another"})["token"]
    assert token not in said(list(Entry.objects.all()))


@program("token.revoked")
def _(w: World) -> None:
    row, _token = create_token(user=w.admin, name="old")
    w.api("DELETE", f"tokens/{row.pk}/")


@program("webhook.made")
def _(w: World) -> None:
    w.api("POST", "webhooks/", {"url": URL, "events": ["file.ready"]})


@program("webhook.changed")
def _(w: World) -> None:
    made = create_webhook(user=w.admin, url=URL, events=["file.ready"], origin="http://x")
    w.api("PATCH", f"webhooks/{made.pk}/", {"enabled": False})


@program("webhook.deleted")
def _(w: World) -> None:
    made = create_webhook(user=w.admin, url=URL, events=["file.ready"], origin="http://x")
    w.api("DELETE", f"webhooks/{made.pk}/")


@program("file.deleted")
def _(w: World) -> None:
    w.api("DELETE", f"files/{w.file(w.admin).pk}/")


@program("conversation.deleted")
def _(w: World) -> None:
    w.api("DELETE", f"conversations/{w.conversation(w.admin).pk}/")


@program("conversation.exported")
def _(w: World) -> None:
    w.api("GET", f"conversations/{w.conversation(w.admin).pk}/export/")


@program("persona.made")
def _(w: World) -> None:
    w.api("POST", "personas/", {"name": TEXT, "instructions": TEXT})


@program("persona.changed")
def _(w: World) -> None:
    w.api("PATCH", f"personas/{w.persona(w.admin).pk}/", {"instructions": f"{TEXT} {TEXT}"})


@program("persona.published")
def _(w: World) -> None:
    w.api("PATCH", f"personas/{w.persona(w.admin).pk}/", {"visibility": "workspace"})


@program("persona.withdrawn")
def _(w: World) -> None:
    made = w.persona(w.admin)
    Persona.objects.filter(pk=made.pk).update(visibility="workspace")
    w.api("PATCH", f"personas/{made.pk}/", {"visibility": "private"})


@program("persona.deleted")
def _(w: World) -> None:
    w.api("DELETE", f"personas/{w.persona(w.admin).pk}/")


@program("project.made")
def _(w: World) -> None:
    w.api("POST", "projects/", {"name": TEXT, "instructions": TEXT})


@program("project.changed")
def _(w: World) -> None:
    w.api("PATCH", f"projects/{w.project(w.admin).pk}/", {"instructions": f"{TEXT} {TEXT}"})


@program("project.deleted")
def _(w: World) -> None:
    w.api("DELETE", f"projects/{w.project(w.admin).pk}/")


@program("member.invited")
def _(w: World) -> None:
    w.api("POST", f"projects/{w.project(w.admin).pk}/members/", {"username": "olga", "role": "editor"})


@program("member.role_changed")
def _(w: World) -> None:
    project = w.project(w.admin)
    projects.add_member(user=w.admin, project=project, person=w.olga, role="reader")
    w.api("PATCH", f"projects/{project.pk}/members/{w.olga.pk}/", {"role": "editor"})


@program("member.removed")
def _(w: World) -> None:
    project = w.project(w.admin)
    projects.add_member(user=w.admin, project=project, person=w.olga, role="reader")
    w.api("DELETE", f"projects/{project.pk}/members/{w.olga.pk}/")


@program("system_prompt.added")
def _(w: World) -> None:
    w.api("POST", "system-prompts/", {"text": TEXT})


@program("workspace.changed")
def _(w: World) -> None:
    w.api("PATCH", "workspace/", {"sharing": False, "notice": TEXT})


# In the admin: admin


@staff("person.signed_in")
def _(w: World) -> None:
    w.post("/admin/login/", {"username": "admin", "password": PASSWORD}, who=Client(REMOTE_ADDR=AGENT))


@staff("person.invited")
def _(w: World) -> None:
    w.manage("accounts_user_add", form={"username": "binh", "email": "binh@example.org", "groups": []})


@staff("person.imported")
def _(w: World) -> None:
    w.manage("accounts_user_import_table", form={"text": "username,email\nbinh,binh@example.org\n"})


@staff("person.link_made")
def _(w: World) -> None:
    link = w.manage("accounts_user_new_link", w.olga).context["links"][0][1]
    assert link.partition("key=")[2] not in said(list(Entry.objects.all()))


@staff("person.signed_out_everywhere")
def _(w: World) -> None:
    w.manage("accounts_user_sign_out", w.olga)


def person_form(person: User, **changes: Any) -> dict[str, Any]:
    form = {"username": person.username, "timezone": person.timezone, "language": "", "email": "", "is_active": "on"}
    return form | changes


@staff("person.changed")
def _(w: World) -> None:
    w.manage("accounts_user_change", w.olga, person_form(w.olga, first_name="Olga"))


@staff("person.deactivated")
def _(w: World) -> None:
    w.manage("accounts_user_changelist", form={"action": "deactivate_selected", "_selected_action": [str(w.olga.pk)]})


@staff("person.activated")
def _(w: World) -> None:
    User.objects.filter(pk=w.olga.pk).update(is_active=False)
    w.manage("accounts_user_changelist", form={"action": "activate_selected", "_selected_action": [str(w.olga.pk)]})


@staff("person.rights_changed")
def _(w: World) -> None:
    group = Group.objects.create(name="Editors")
    w.manage("accounts_user_change", w.olga, person_form(w.olga, groups=[group.pk]))


@staff("person.handed_over")
def _(w: World) -> None:
    w.persona(w.olga)
    w.manage("accounts_user_hand_over", w.olga, {"to": "admin"})


@staff("person.deleted")
def _(w: World) -> None:
    w.manage("accounts_user_delete", w.olga)


@staff("password.set")
def _(w: World) -> None:
    form = {"password1": SECRET, "password2": SECRET, "usable_password": "true"}
    w.staff.post(reverse("admin:auth_user_password_change", args=[w.olga.pk]), form)


@staff("token.revoked")
def _(w: World) -> None:
    row, _token = create_token(user=w.olga, name="notebook")
    w.manage("accounts_apitoken_revoke", row)


@staff("webhook.switched_off")
def _(w: World) -> None:
    w.manage("accounts_webhook_switch_off", create_webhook(user=w.olga, url=URL, events=["file.ready"], origin="x"))


@staff("group.added")
def _(w: World) -> None:
    w.manage("auth_group_add", form={"name": "Editors"})


@staff("group.changed")
def _(w: World) -> None:
    w.manage("auth_group_change", Group.objects.create(name="Editors"), {"name": "Writers"})


@staff("group.deleted")
def _(w: World) -> None:
    w.manage("auth_group_delete", Group.objects.create(name="Editors"))


def provider_form(name: str, **more: Any) -> dict[str, Any]:
    form = {"name": name, "kind": "openai", "base_url": URL, "enabled": "on", "silence_timeout": 120}
    return form | {"new_api_key": SECRET} | more


@staff("provider.added")
def _(w: World) -> None:
    w.manage("llm_provider_add", form=provider_form("Ours"))


@staff("provider.changed")
def _(w: World) -> None:
    made = w.provider()
    w.manage("llm_provider_change", made, provider_form(made.name, new_api_key=f"{SECRET}2"))
    assert Entry.objects.get(action="provider.changed").changes["api_key"] is None


@staff("provider.deleted")
def _(w: World) -> None:
    w.manage("llm_provider_delete", w.provider())


def in_admin(w: World, does: Callable[[], object]) -> None:
    """What a form of many fields comes to: its service, called as the page calls it."""
    with acting(Origin(How.ADMIN, AGENT, "a-request")):
        does()


@staff("model.added")
def _(w: World) -> None:
    model = w.model()
    model.pk, model._state.adding, model.name = None, True, "another"
    model.pk = type(model)().pk
    in_admin(w, lambda: store_model(user=w.admin, model=model))


@staff("model.changed")
def _(w: World) -> None:
    model = w.model()
    model.enabled = False
    in_admin(w, lambda: store_model(user=w.admin, model=model))


@staff("model.made_default")
def _(w: World) -> None:
    w.manage("llm_model_make_default", w.model())


@staff("model.deleted")
def _(w: World) -> None:
    w.manage("llm_model_delete", w.model())


def web_search() -> WebSearch:
    return WebSearch.objects.create(name="Search", base_url=URL, api_key=SECRET)


@staff("web_search.added")
def _(w: World) -> None:
    form = {"name": "Search", "kind": "searxng", "base_url": URL, "new_api_key": SECRET}
    w.manage("llm_websearch_add", form=form)


@staff("web_search.switched_on")
def _(w: World) -> None:
    w.manage("llm_websearch_use", web_search())


@staff("web_search.switched_off")
def _(w: World) -> None:
    WebSearch.objects.filter(pk=(made := web_search()).pk).update(active=True)
    w.manage("llm_websearch_stop_using", made)


@staff("web_search.deleted")
def _(w: World) -> None:
    w.manage("llm_websearch_delete", web_search())


@staff("web_access.added")
def _(w: World) -> None:
    in_admin(w, lambda: store_web_access(user=w.admin, web_access=WebAccess(denied_hosts="bad.example")))


def tool_server(**more: Any) -> ToolServer:
    return ToolServer(name="tools", base_url=URL, api_key=SECRET, **more)


@staff("tool_server.added")
def _(w: World) -> None:
    in_admin(w, lambda: store_tool_server(user=w.admin, tool_server=tool_server(), api_key=SECRET))


@staff("tool_server.changed")
def _(w: World) -> None:
    made = tool_server()
    made.save()
    made.approval_required = not made.approval_required
    in_admin(w, lambda: store_tool_server(user=w.admin, tool_server=made, api_key=f"{SECRET}2"))


@staff("tool_server.deleted")
def _(w: World) -> None:
    made = tool_server()
    made.save()
    w.manage("llm_toolserver_delete", made)


@staff("system_prompt.activated")
def _(w: World) -> None:
    w.manage("personas_systemprompt_activate", save_prompt(user=None, kind=SystemPrompt, text=TEXT, activate=False))


@staff("summary_prompt.added")
def _(w: World) -> None:
    in_admin(w, lambda: save_prompt(user=w.admin, kind=SummaryPrompt, text=TEXT))


@staff("summary_prompt.activated")
def _(w: World) -> None:
    w.manage("personas_summaryprompt_activate", save_prompt(user=None, kind=SummaryPrompt, text=TEXT, activate=False))


@staff("prompt_text.added")
def _(w: World) -> None:
    in_admin(w, lambda: save_text(user=w.admin, name="citations", text=TEXT))


def use_text(w: World, version: int) -> None:
    address = reverse("admin:personas_prompttext_use", args=["citations"])
    assert w.staff.post(address, {"version": version}).status_code == 302


@staff("prompt_text.activated")
def _(w: World) -> None:
    use_text(w, save_text(user=None, name="citations", text=TEXT, activate=False).version)


@staff("prompt_text.built_in_activated")
def _(w: World) -> None:
    save_text(user=None, name="citations", text=TEXT)
    use_text(w, 0)


@staff("reminder.added")
def _(w: World) -> None:
    w.manage("personas_reminder_add", form={"text": TEXT, "scope": "everywhere", "position": 0})


@staff("reminder.deleted")
def _(w: World) -> None:
    w.manage("personas_reminder_delete", Reminder.objects.create(text=TEXT))


@staff("budget_profile.made_default")
def _(w: World) -> None:
    w.manage("personas_budgetprofile_make_default", BudgetProfile.objects.create(name="Large"))


@staff("budget_profile.deleted")
def _(w: World) -> None:
    w.manage("personas_budgetprofile_delete", BudgetProfile.objects.create(name="Large"))


@program("budget_profile.changed")
def _(w: World) -> None:
    made = BudgetProfile.objects.create(name="Large")
    w.api("PATCH", f"budget-profiles/{made.pk}/", {"buffer": 77})
    assert Entry.objects.get(action="budget_profile.changed").changes["buffer"][1] == 77


@staff("embedder.added")
def _(w: World) -> None:
    form = {"name": "e", "kind": "openai", "base_url": URL, "model": "m", "dimensions": 8, "new_api_key": SECRET}
    w.manage("files_embedder_add", form=form)


@staff("embedder.deleted")
def _(w: World) -> None:
    w.manage("files_embedder_delete", Embedder.objects.create(name="e", api_key=SECRET))


@staff("persona.opened")
def _(w: World) -> None:
    assert w.staff.get(reverse("admin:personas_persona_change", args=[w.persona(w.olga).pk])).status_code == 200


@staff("project.opened")
def _(w: World) -> None:
    assert w.staff.get(reverse("admin:projects_project_change", args=[w.project(w.olga).pk])).status_code == 200


@staff("file.given")
def _(w: World) -> None:
    content = SimpleUploadedFile("a.txt", TEXT.encode())
    in_admin(w, lambda: projects.give_file(user=w.admin, project=w.project(w.olga), name="a.txt", content=content))


@staff("usage.exported")
def _(w: World) -> None:
    assert w.staff.get(reverse("admin:chat_modelcall_sums"), {"first": "2026-01-01", "csv": "1"}).status_code == 200


@staff("audit.exported")
def _(w: World) -> None:
    assert w.staff.get(reverse("admin:audit_entry_take_along"), {"kind": "jsonl"}).status_code == 200


# By a command, and by the product itself


@act("token.made", How.COMMAND)
def _(w: World) -> None:
    with acting(Origin(How.COMMAND, name="operator")):
        call_command("token", "olga")


@act("provider.added", How.COMMAND)
def _(w: World) -> None:
    with acting(Origin(How.COMMAND, name="operator")):
        call_command(
            "provider", "Ours", "--base-url", "http://127.0.0.1:9/v1", "--api-key", SECRET, "--model", "m:4096"
        )


@act("conversation.erased", How.SYSTEM)
def _(w: World) -> None:
    made = w.conversation(w.olga)
    type(made).objects.filter(pk=made.pk).update(deleted=timezone.now() - timedelta(days=3))
    purge()


@pytest.mark.parametrize(("action", "how", "does"), ACTS, ids=[f"{action}-{how}" for action, how, _ in ACTS])
def test_an_act_is_recorded(world: World, action: str, how: How, does: Act) -> None:
    before = set(Entry.objects.values_list("pk", flat=True))
    does(world)
    recorded = list(Entry.objects.exclude(pk__in=before))
    found = [entry for entry in recorded if entry.action == action and entry.how == how]
    assert found, [(entry.action, entry.how) for entry in recorded]
    actor = {How.PAGE: "olga", How.COMMAND: "operator", How.SYSTEM: ""}.get(how, "admin")
    expected = "" if action == "person.sign_in_failed" else actor
    ids = {"olga": world.olga.pk, "admin": world.admin.pk}
    for entry in found:
        assert (entry.actor_name, entry.actor_id) == (expected, ids.get(expected))
        assert (entry.token_id == world.token_row.pk) == (how == How.API)
        assert (entry.address == AGENT) == bool(entry.request_id) == (how in (How.PAGE, How.API, How.ADMIN))
    assert SECRET not in said(recorded) and TEXT not in said(recorded) and PASSWORD not in said(recorded)


def test_there_are_sixty_of_them() -> None:
    assert len({(action, how) for action, how, _ in ACTS}) >= 60
    assert len({action for action, _, _ in ACTS}) >= 60
