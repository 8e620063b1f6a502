"""Acts of the administrator in the admin or by a command, and acts of the product itself."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.groups.services import follow_claims, save_group
from accounts.models import Limit, OpenIDProvider, PeopleGroup, User
from accounts.services import create_token
from accounts.webhooks.services import create_webhook
from chat.conversations.erasing import erase_due
from core.audit.models import Entry
from core.audit.origin import How, Origin, use_origin
from files.models import Embedder, SpeechServer
from llm.models import ToolServer, WebAccess, WebSearch
from llm.services import save_model_form
from llm.tools.services import store_tool_server, store_web_access
from personas.models import BudgetProfile, Reminder, SummaryPrompt, SystemPrompt
from personas.services import save_prompt, save_text
from projects import services as projects
from tests.accounts.factors import with_app
from tests.core.audit.acts import act, program, staff
from tests.core.audit.world import AGENT, PASSWORD, SECRET, TEXT, World, texts_of

URL = f"http://127.0.0.1:9/{SECRET}"


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
    assert link.partition("key=")[2] not in texts_of(list(Entry.objects.all()))


@staff("second_factor.reset")
def _(w: World) -> None:
    with_app(w.olga)
    w.manage("accounts_user_reset_second_factors", w.olga)


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


LIMIT = {"unit": "tokens", "per": "day", "amount": "1000"}


def a_limit(w: World) -> Limit:
    return Limit.objects.create(user=w.olga, **LIMIT)


@staff("limit.added")
def _(w: World) -> None:
    w.manage("accounts_limit_add", form={**LIMIT, "user": str(w.olga.pk)})


@staff("limit.changed")
def _(w: World) -> None:
    w.manage("accounts_limit_change", a_limit(w), {**LIMIT, "amount": "2000"})


@staff("limit.deleted")
def _(w: World) -> None:
    w.manage("accounts_limit_delete", a_limit(w))


@program("limit.added")
def _(w: World) -> None:
    w.api("POST", "limits/", {**LIMIT, "for": {"user": str(w.olga.pk)}})


@program("limit.changed")
def _(w: World) -> None:
    w.api("PATCH", f"limits/{a_limit(w).pk}/", {"amount": "2000"})


@program("limit.deleted")
def _(w: World) -> None:
    w.api("DELETE", f"limits/{a_limit(w).pk}/")


@staff("person.deleted")
def _(w: World) -> None:
    w.manage("accounts_user_delete", w.olga)


@staff("person.erased")
def _(w: World) -> None:
    w.manage("accounts_user_erase", w.olga, {"_form_submitted": "on", "sure": "on"})


@staff("conversation.held")
def _(w: World) -> None:
    w.manage("chat_conversation_hold", w.conversation(w.olga), {"_form_submitted": "on"})


@staff("conversation.released")
def _(w: World) -> None:
    w.manage("chat_conversation_release", w.conversation(w.olga), {"_form_submitted": "on"})


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


def openid_form(name: str) -> dict[str, Any]:
    return {"name": name, "issuer": "http://127.0.0.1:9", "client_id": "here", "new_secret": SECRET, "enabled": "on"}


def openid_provider() -> OpenIDProvider:
    return OpenIDProvider.objects.create(name="Company", issuer="http://127.0.0.1:9", client_id="here")


@staff("openid_provider.added")
def _(w: World) -> None:
    w.manage("accounts_openidprovider_add", form=openid_form("Company"))


@staff("openid_provider.changed")
def _(w: World) -> None:
    w.manage("accounts_openidprovider_change", openid_provider(), openid_form("Firm"))


@staff("openid_provider.deleted")
def _(w: World) -> None:
    w.manage("accounts_openidprovider_delete", openid_provider())


def people_group(w: World) -> PeopleGroup:
    return save_group(user=None, group=None, fields={"name": "Sales", "members": [w.olga]})


@staff("people_group.added")
def _(w: World) -> None:
    w.manage("accounts_peoplegroup_add", form={"name": "Sales", "members": [w.olga.pk], "may": ["share"]})


@staff("people_group.changed")
def _(w: World) -> None:
    w.manage("accounts_peoplegroup_change", people_group(w), {"name": "Sales", "all_models": "on"})


@staff("people_group.deleted")
def _(w: World) -> None:
    w.manage("accounts_peoplegroup_delete", people_group(w))


@act("people_group.members_changed", How.SYSTEM)
def _(w: World) -> None:
    group = save_group(user=None, group=None, fields={"name": "Sales", "claim": "sales"})
    follow_claims(person=w.olga, claims=[group.claim])


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
    provider = w.provider()
    w.manage("llm_provider_change", provider, provider_form(provider.name, new_api_key=f"{SECRET}2"))
    assert Entry.objects.get(action="provider.changed").changes["api_key"] is None


@staff("provider.deleted")
def _(w: World) -> None:
    w.manage("llm_provider_delete", w.provider())


def in_admin(w: World, does: Callable[[], object]) -> None:
    """Call the service of a form with many fields, as the admin's page does."""
    with use_origin(Origin(How.ADMIN, AGENT, "a-request")):
        does()


@staff("model.added")
def _(w: World) -> None:
    model = w.model()
    model.pk, model._state.adding, model.name = None, True, "another"
    model.pk = type(model)().pk
    in_admin(w, lambda: save_model_form(user=w.admin, model=model))


@staff("model.changed")
def _(w: World) -> None:
    model = w.model()
    model.enabled = False
    in_admin(w, lambda: save_model_form(user=w.admin, model=model))


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
    WebSearch.objects.filter(pk=(search := web_search()).pk).update(active=True)
    w.manage("llm_websearch_stop_using", search)


@staff("web_search.deleted")
def _(w: World) -> None:
    w.manage("llm_websearch_delete", web_search())


def speech_server(**more: Any) -> SpeechServer:
    return SpeechServer.objects.create(name="Speech", base_url=URL, api_key=SECRET, **more)


@staff("speech_server.added")
def _(w: World) -> None:
    form = {"name": "Speech", "kind": "transcription", "base_url": URL, "new_api_key": SECRET}
    w.manage("files_speechserver_add", form={**form, "largest": 25, "patience": 600})


@staff("speech_server.changed")
def _(w: World) -> None:
    row = speech_server()
    form = {"name": "Speech", "base_url": URL, "largest": 20, "patience": 600}
    w.manage("files_speechserver_change", row, form=form)


@staff("speech_server.switched_on")
def _(w: World) -> None:
    w.manage("files_speechserver_use", speech_server())


@staff("speech_server.switched_off")
def _(w: World) -> None:
    w.manage("files_speechserver_stop_using", speech_server(active=True))


@staff("speech_server.deleted")
def _(w: World) -> None:
    w.manage("files_speechserver_delete", speech_server())


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
    server = tool_server()
    server.save()
    server.approval_required = not server.approval_required
    in_admin(w, lambda: store_tool_server(user=w.admin, tool_server=server, api_key=f"{SECRET}2"))


@staff("tool_server.deleted")
def _(w: World) -> None:
    server = tool_server()
    server.save()
    w.manage("llm_toolserver_delete", server)


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
    profile = BudgetProfile.objects.create(name="Large")
    w.api("PATCH", f"budget-profiles/{profile.pk}/", {"buffer": 77})
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
    in_admin(
        w, lambda: projects.add_file_for_owner(user=w.admin, project=w.project(w.olga), name="a.txt", content=content)
    )


@staff("usage.exported")
def _(w: World) -> None:
    assert w.staff.get(reverse("admin:chat_modelcall_sums"), {"first": "2026-01-01", "csv": "1"}).status_code == 200


@staff("audit.exported")
def _(w: World) -> None:
    assert w.staff.get(reverse("admin:audit_entry_take_along"), {"kind": "jsonl"}).status_code == 200


# By a command, and by the product itself


@act("token.made", How.COMMAND)
def _(w: World) -> None:
    with use_origin(Origin(How.COMMAND, name="operator")):
        call_command("token", "olga")


@act("provider.added", How.COMMAND)
def _(w: World) -> None:
    with use_origin(Origin(How.COMMAND, name="operator")):
        call_command(
            "provider", "Ours", "--base-url", "http://127.0.0.1:9/v1", "--api-key", SECRET, "--model", "m:4096"
        )


@act("conversation.erased", How.SYSTEM)
def _(w: World) -> None:
    conversation = w.conversation(w.olga)
    type(conversation).objects.filter(pk=conversation.pk).update(deleted=timezone.now() - timedelta(days=3))
    erase_due()
