"""Acts of olga on her pages, and of the administrator with a token."""

from uuid import uuid4

from allauth.mfa.models import Authenticator
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts import people
from accounts.models import OpenIDIdentity, User
from accounts.services import create_token
from accounts.webhooks.services import create_webhook
from chat.conversations.sharing import ShareTerms, create_share
from chat.conversations.team_shares import Recipient, TeamTerms, share_conversation
from chat.memory.models import Fact
from chat.memory.services import add_fact
from chat.models import Import, ImportedRow, TeamShare
from chat.readings.models import Reading
from core.audit.models import Entry
from llm.models import ToolGrant, ToolServer
from personas.models import Persona
from personas.sharing import services as personas
from projects import members as projects
from tests.accounts.factors import code_of, with_app
from tests.accounts.openid_browser import row_of, sign_in
from tests.accounts.openid_provider import providing
from tests.config.household import session_of
from tests.core.audit.acts import page, program
from tests.core.audit.world import AGENT, PASSWORD, SECRET, TEXT, World, texts_of
from tests.llm.oauth_server import serving

URL = f"http://127.0.0.1:9/{SECRET}"


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


def app_of(w: World) -> list[str]:
    """Sets up an app of olga's. Returns her recovery codes."""
    return with_app(w.olga, w.page.session.session_key)[1]


def second_step(w: World, code: str) -> None:
    browser = Client(REMOTE_ADDR=AGENT)
    w.post("/login/", {"username": "olga", "password": PASSWORD}, who=browser)
    w.post("/login/second/", {"code": code}, who=browser)


@page("second_factor.set_up")
def _(w: World) -> None:
    secret = w.page.get("/settings/second-factor/app/").context["begun"]["secret"].replace(" ", "")
    codes = w.post("/settings/second-factor/app/", {"code": code_of(secret)}).context["codes"]
    rows = texts_of(list(Entry.objects.all()))
    assert secret not in rows and not any(code in rows for code in codes.split())


@page("second_factor.codes_made")
def _(w: World) -> None:
    app_of(w)
    w.post("/settings/second-factor/codes/")


@page("second_factor.code_used")
def _(w: World) -> None:
    second_step(w, app_of(w)[0])


@page("second_factor.refused")
def _(w: World) -> None:
    app_of(w)
    second_step(w, "no code")


@page("second_factor.removed")
def _(w: World) -> None:
    app_of(w)
    w.post(f"/settings/second-factor/{Authenticator.objects.get(user=w.olga, type='totp').pk}/remove/")


@page("token.made")
def _(w: World) -> None:
    form = {"name": "notebook", "scopes": ["chat"], "days": "30", "password": PASSWORD}
    answer = w.post("/settings/tokens/", form)
    assert answer.context["token"] not in texts_of(list(Entry.objects.all()))


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


@page("person.email_changed")
def _(w: World) -> None:
    w.post("/settings/email/", {"email": "another@example.org"})


@page("person.linked")
def _(w: World) -> None:
    User.objects.filter(pk=w.olga.pk).update(email="olga@example.org")
    with providing() as provider:
        provider.person |= {"email": "olga@example.org", "email_verified": True}
        sign_in(provider, row_of(provider, matches_email=True), Client(REMOTE_ADDR=AGENT))


@page("person.signed_out_by_provider")
def _(w: World) -> None:
    with providing() as provider:
        row = row_of(provider)
        OpenIDIdentity.objects.create(user=w.olga, issuer=row.issuer, subject=provider.person["sub"])
        token = provider.logout_token(sub=provider.person["sub"])
        w.post(reverse("openid-sign-out", args=[row.pk]), {"logout_token": token}, who=Client(REMOTE_ADDR=AGENT))


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
    conversation = w.conversation(w.olga)
    w.post(f"/c/{conversation.pk}/delete/")
    w.post(f"/c/{conversation.pk}/restore/")


@page("conversation.import_undone")
def _(w: World) -> None:
    job = Import.objects.create(owner=w.olga, name=TEXT, status=Import.Status.DONE)
    conversation = w.conversation(w.olga)
    job.rows.create(kind=ImportedRow.Kind.CONVERSATION, row=conversation.pk, created=timezone.now())
    w.post(f"/import/{job.pk}/undo/")


@page("message.deleted")
def _(w: World) -> None:
    w.post(f"/messages/{w.conversation(w.olga).leaf_id}/delete/")


@page("message.edited")
def _(w: World) -> None:
    w.post(f"/messages/{w.answer(w.olga).pk}/edit/", {"text": TEXT})


@page("message.restored")
def _(w: World) -> None:
    leaf = w.conversation(w.olga).leaf_id
    w.post(f"/messages/{leaf}/delete/")
    w.post(f"/messages/{leaf}/restore/")


@page("reading.begun")
def _(w: World) -> None:
    w.model()
    file = w.text(w.olga)
    shown = w.page.get(f"/files/{file.pk}/read/")
    w.post(f"/files/{file.pk}/read/", {"question": TEXT, "calls": shown.context["planned"].plan.calls})


@page("reading.removed")
def _(w: World) -> None:
    reading = Reading.objects.create(person=w.olga, question=TEXT, file_name=TEXT, status="done", calls=2, tokens=1)
    w.post(f"/readings/{reading.pk}/remove/")


@page("share.made")
def _(w: World) -> None:
    w.post(f"/c/{w.conversation(w.olga).pk}/share/", {"password": SECRET})


@page("share.ended")
def _(w: World) -> None:
    link = create_share(user=w.olga, conversation=w.conversation(w.olga), terms=ShareTerms(password=SECRET))
    w.post(f"/shares/{link.pk}/end/")
    assert link.token not in texts_of(list(Entry.objects.all()))


def team_share(w: World, *, owner: User, username: str) -> TeamShare:
    return share_conversation(
        user=owner,
        conversation=w.conversation(owner),
        recipient=Recipient(username=username),
        terms=TeamTerms(may_copy=True),
    )


@page("team_share.made")
def _(w: World) -> None:
    w.post(f"/c/{w.conversation(w.olga).pk}/team-shares/", {"username": "admin"})


@page("team_share.changed")
def _(w: World) -> None:
    row = team_share(w, owner=w.olga, username="admin")
    w.post(f"/c/{row.conversation_id}/team-shares/", {"username": "admin"})


@page("team_share.ended")
def _(w: World) -> None:
    w.post(f"/team-shares/{team_share(w, owner=w.olga, username='admin').pk}/end/")


@page("team_share.copied")
def _(w: World) -> None:
    w.post(f"/shared-with-me/{team_share(w, owner=w.admin, username='olga').pk}/copy/")


@program("team_share.made")
def _(w: World) -> None:
    w.api("POST", f"conversations/{w.conversation(w.admin).pk}/team-shares/", {"username": "olga"})


@program("team_share.ended")
def _(w: World) -> None:
    w.api("DELETE", f"team-shares/{team_share(w, owner=w.admin, username='olga').pk}/")


@program("team_share.copied")
def _(w: World) -> None:
    w.api("POST", f"shared-with-me/{team_share(w, owner=w.olga, username='admin').pk}/copy/")


@page("usage.exported")
def _(w: World) -> None:
    assert w.page.get("/usage.csv").status_code == 200


# With a token: admin


@program("token.made")
def _(w: World) -> None:
    token = w.api("POST", "tokens/", {"name": "another"})["token"]
    assert token not in texts_of(list(Entry.objects.all()))


@program("token.revoked")
def _(w: World) -> None:
    row, _token = create_token(user=w.admin, name="old")
    w.api("DELETE", f"tokens/{row.pk}/")


def grant_of(w: World, user: User) -> ToolGrant:
    server = ToolServer.objects.create(name=f"o{uuid4().hex[:8]}", base_url="http://127.0.0.1:9/mcp", access="person")
    return ToolGrant.objects.create(
        user=user,
        tool_server=server,
        address=server.base_url,
        issuer="http://127.0.0.1:9",
        token_endpoint="http://127.0.0.1:9/token",
        client_id="here",
        auth_method="none",
        access_token=SECRET,
    )


@page("tool_grant.connected")
def _(w: World) -> None:
    with serving() as oauth:
        name = f"o{uuid4().hex[:8]}"
        server = ToolServer.objects.create(name=name, base_url=oauth.url, access="person")
        go_page = w.post(f"/settings/tools/{server.pk}/sign-in/")
        w.page.get(oauth.authorize(go_page.context["address"]).raw_path.decode())


@program("tool_grant.disconnected")
def _(w: World) -> None:
    w.api("DELETE", f"connected-tools/{grant_of(w, w.admin).tool_server_id}/")


@program("webhook.made")
def _(w: World) -> None:
    w.api("POST", "webhooks/", {"url": URL, "events": ["file.ready"]})


@program("webhook.changed")
def _(w: World) -> None:
    webhook = create_webhook(user=w.admin, url=URL, events=["file.ready"], origin="http://x")
    w.api("PATCH", f"webhooks/{webhook.pk}/", {"enabled": False})


@program("webhook.deleted")
def _(w: World) -> None:
    webhook = create_webhook(user=w.admin, url=URL, events=["file.ready"], origin="http://x")
    w.api("DELETE", f"webhooks/{webhook.pk}/")


@program("file.deleted")
def _(w: World) -> None:
    w.api("DELETE", f"files/{w.file(w.admin).pk}/")


@program("conversation.deleted")
def _(w: World) -> None:
    w.api("DELETE", f"conversations/{w.conversation(w.admin).pk}/")


@program("message.edited")
def _(w: World) -> None:
    w.api("POST", f"messages/{w.answer(w.admin).pk}/edit-answer/", {"text": TEXT})


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
    persona = w.persona(w.admin)
    Persona.objects.filter(pk=persona.pk).update(visibility="workspace")
    w.api("PATCH", f"personas/{persona.pk}/", {"visibility": "private"})


@program("persona.shared")
def _(w: World) -> None:
    w.api("POST", f"personas/{w.persona(w.admin).pk}/shares/", {"username": "olga", "role": "editor"})


@program("persona.share_changed")
def _(w: World) -> None:
    persona = w.persona(w.admin)
    row = personas.share(user=w.admin, persona=persona, username="olga")
    w.api("PATCH", f"personas/{persona.pk}/shares/{row.pk}/", {"role": "owner"})


@program("persona.unshared")
def _(w: World) -> None:
    persona = w.persona(w.admin)
    row = personas.share(user=w.admin, persona=persona, username="olga")
    w.api("DELETE", f"personas/{persona.pk}/shares/{row.pk}/")


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


def fact_of(w: World) -> Fact:
    return add_fact(user=w.olga, text=f"Likes {TEXT}")


@page("memory.changed")
def _(w: World) -> None:
    w.post("/memory/", {"about": TEXT, "answering": TEXT, "proposals": "ask"})


@page("fact.kept")
def _(w: World) -> None:
    w.post("/memory/facts/", {"text": f"Likes {TEXT}"})


@page("fact.corrected")
def _(w: World) -> None:
    w.post(f"/memory/facts/{fact_of(w).pk}/", {"act": "correct", "text": f"Loves {TEXT} and tea"})


@page("fact.forgotten")
def _(w: World) -> None:
    w.post(f"/memory/facts/{fact_of(w).pk}/", {"act": "forget"})


@page("memory.emptied")
def _(w: World) -> None:
    fact_of(w)
    w.post("/memory/forget/", {})
