"""Setting up: the steps of the first administrator, and their errors."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from llm.models import Model, Provider
from personas.models import Persona
from tests.conftest import PASSWORD
from tests.scripted_model import ScriptedModel
from workspace import services as workspace
from workspace.models import Workspace
from workspace.models.settings import workspace_at

pytestmark = pytest.mark.django_db
KEY = "sk-of-a-newcomer-123"


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as started:
        yield started


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"error": {"message": "Incorrect API key provided"}}'
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Not on the terminal."""


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of a server that takes no key."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()


def connect(client: Client, address: str, key: str = "", **more: str) -> Any:
    sent = {"service": "compatible", "base_url": address, "new_api_key": key, **more}
    return client.post("/setup/provider/", sent)


def sign_in(client: Client, name: str, to: str = "") -> str:
    form = {"username": name, "password": PASSWORD, "next": to}
    return str(client.post("/login/", form, REMOTE_ADDR="203.0.113.6").headers["Location"])


def test_only_the_first_sign_in_of_the_first_administrator_leads_there(client: Client) -> None:
    User.objects.create_user("olga", password=PASSWORD)
    User.objects.create_superuser("root", password=PASSWORD)
    assert sign_in(client, "olga") == "/"
    assert client.get("/setup/").status_code == 403
    assert "setup-card" not in client.get("/").content.decode()
    admin = Client()
    assert sign_in(Client(), "root", to="/projects/") == "/projects/"
    assert sign_in(admin, "root", to="/") == "/setup/"
    assert sign_in(Client(), "root") == "/"
    assert "setup-card" in admin.get("/").content.decode()
    assert admin.get("/admin/").content.decode().count('href="/setup/"') == 1
    assert admin.post("/setup/end/").headers["Location"] == "/"
    assert "setup-card" not in admin.get("/").content.decode()
    assert "is set up" in admin.get("/setup/").content.decode()


def test_from_a_provider_to_the_first_people(admin_client: Client, model: ScriptedModel) -> None:
    model.set_script("other", {"text": "Hello."})
    answer = connect(admin_client, model.openai_url, KEY)
    provider = Provider.objects.get()
    assert answer.headers["Location"] == f"/setup/models/{provider.pk}/"
    assert (provider.api_key, provider.enabled, provider.kind) == (KEY, True, "openai")
    page = admin_client.get(answer.headers["Location"]).content.decode()
    assert page.count('name="model"') == 2 and "offers 2 models" in page and KEY not in page
    chosen = admin_client.post(answer.headers["Location"], {"model": ["scripted"], "other": "by-name"})
    assert chosen.headers["Location"] == "/setup/default/"
    assert set(Model.objects.values_list("name", flat=True)) == {"scripted", "by-name"}
    own = Model.objects.get(name="scripted")
    assert admin_client.post("/setup/default/", {"model": str(own.pk)}).headers["Location"] == "/setup/persona/"
    own.refresh_from_db()
    assert own.default
    reply = admin_client.post("/setup/persona/", {"name": "Our editor", "description": "", "instructions": "Edit."})
    assert reply.headers["Location"] == "/setup/people/"
    persona = Persona.objects.get(name="Our editor")
    assert (persona.visibility, persona.owner, persona.instructions) == ("workspace", User.objects.get(), "Edit.")
    invited = admin_client.post("/setup/people/", {"username": "ann", "email": ""}).content.decode()
    link = re.search(r"http://testserver(/welcome/[^<\s]+)", invited)
    assert link and "ann is invited" in invited and not User.objects.get(username="ann").has_usable_password()
    assert "Choose your password" in Client().get(link[1].replace("&amp;", "&")).content.decode()
    steps = admin_client.get("/setup/").content.decode()
    assert steps.count('class="done"') == 5


def test_models_that_only_embed_are_named_and_not_offered(admin_client: Client, model: ScriptedModel) -> None:
    names = ("big-one", "text-embedding-3-small", "whisper-1")
    model.say({"GET /many/models": {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}})
    answer = connect(admin_client, f"{model.url}/many", KEY)
    page = admin_client.get(answer.headers["Location"]).content.decode()
    assert page.count('name="model"') == 1 and 'value="big-one"' in page
    assert "2 other models are not for conversations" in page and "text-embedding-3-small, whisper-1" in page
    tested = admin_client.get(f"/admin/llm/provider/{Provider.objects.get().pk}/test/").content.decode()
    assert tested.count('name="model"') == 1 and tested.count("It is not for conversations.") == 2


def test_what_is_wrong_is_said_and_what_was_typed_is_kept(
    admin_client: Client, model: ScriptedModel, refusing: str
) -> None:
    nobody = "http://127.0.0.1:9/v1"
    wrong = connect(admin_client, nobody, KEY)
    page = wrong.content.decode()
    assert wrong.status_code == 422 and "cannot be reached" in page and nobody in page and KEY not in page
    row = Provider.objects.get()
    form = connect(admin_client, nobody, of=str(row.pk)).content.decode()
    assert Provider.objects.get().api_key == KEY and "cannot be reached" in form
    moved = connect(admin_client, refusing, of=str(row.pk)).content.decode()
    assert "The stored key belongs to the previous address" in moved and "clear_api_key" in moved
    refused = connect(admin_client, refusing, "sk-wrong", of=str(row.pk)).content.decode()
    assert "API key" in refused and 'data-code="bad_credentials"' in refused and "sk-wrong" not in refused
    assert Provider.objects.get().pk == row.pk  # one row, corrected again and again
    model.say({"GET /empty/models": {"object": "list", "data": []}})
    empty = connect(admin_client, f"{model.url}/empty", "k", of=str(row.pk)).content.decode()
    assert "offers no model" in empty
    assert "Not connected yet" in admin_client.get("/setup/").content.decode()
    assert connect(admin_client, model.openai_url, clear_api_key="on", of=str(row.pk)).status_code == 302
    assert Provider.objects.get().api_key == ""


@pytest.mark.parametrize(
    ("path", "sent", "sentence"),
    [
        ("/setup/provider/", {"service": "compatible", "base_url": ""}, "Enter the address of the server"),
        ("/setup/provider/", {"service": "compatible", "base_url": "ftp://x"}, "Begin with http"),
        ("/setup/provider/", {"service": "nobody"}, "Select a valid choice"),
        ("/setup/provider/", {"service": "openai", "new_api_key": "ключ"}, "characters that a key cannot have"),
        ("/setup/persona/", {"name": "", "instructions": "kept words"}, "kept words"),
        ("/setup/people/", {"username": "a b"}, "a b"),
    ],
)
def test_bad_input_stays_in_its_form(admin_client: Client, path: str, sent: dict[str, str], sentence: str) -> None:
    answer = admin_client.post(path, sent)
    page = answer.content.decode()
    assert answer.status_code == 422 and sentence in page and 'role="alert"' in page
    assert not Provider.objects.exists() and User.objects.count() == 1


def test_a_provider_that_is_away_later_is_said_on_the_page_of_its_models(admin_client: Client) -> None:
    row = Provider.objects.create(name="Gone", base_url="http://127.0.0.1:9/v1")
    page = admin_client.get(f"/setup/models/{row.pk}/").content.decode()
    assert "cannot be reached" in page and f"/setup/provider/?of={row.pk}" in page
    none = admin_client.post(f"/setup/models/{row.pk}/", {"other": " "})
    assert none.status_code == 422 and "Choose at least one model" in none.content.decode()
    assert row.base_url in admin_client.get(f"/setup/provider/?of={row.pk}").content.decode()
    assert admin_client.get("/setup/provider/?of=nothing").status_code == 404


def test_a_provider_saved_in_the_admin_without_models_says_what_comes_next(admin_client: Client) -> None:
    form = {"name": "Ours", "kind": "openai", "base_url": "http://127.0.0.1:9/v1", "enabled": "on"}
    saved = admin_client.post(
        "/admin/llm/provider/add/", {**form, "silence_timeout": "9", "new_api_key": ""}, follow=True
    )
    row, page = Provider.objects.get(), saved.content.decode()
    assert saved.redirect_chain[-1][0] == f"/admin/llm/provider/{row.pk}/change/"
    assert "has no models yet" in page and "Test connection and choose models" in page
    Model.objects.create(provider=row, name="m")
    again = admin_client.post(
        f"/admin/llm/provider/{row.pk}/change/", {**form, "silence_timeout": "9", "new_api_key": ""}, follow=True
    )
    assert again.redirect_chain[-1][0] == "/admin/llm/provider/"


def test_the_state_of_setting_up_is_for_administrators() -> None:
    with pytest.raises(Exception, match="staff_only"):
        workspace.set_setup(user=User.objects.create_user("olga"), state=Workspace.Setup.DONE)
    assert workspace_at().setup == Workspace.Setup.NEW
