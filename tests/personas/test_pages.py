"""The pages of personas: their rights, and the texts of the choices."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from chat.models import Conversation
from llm.models import Model, Provider, ToolServer
from llm.tools.services import try_tool_server
from personas.models import BudgetProfile, Persona, Reminder, SystemPrompt
from personas.services import save_prompt, set_default_profile
from projects.models import Project
from tests.llm.misbehaving_server import Misbehaving, tool
from tests.llm.sums import SERVER

pytestmark = pytest.mark.django_db
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def owner() -> User:
    return User.objects.create_user("pia")


@pytest.fixture
def persona(owner: User) -> Persona:
    return Persona.objects.create(owner=owner, name="Legal", instructions="Cite.", tokens={"o200k_base": 2})


def signed_in(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def page(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return words(response)


def words(response: Any) -> str:
    return re.sub(r"\s+", " ", response.content.decode())


def form(**changes: Any) -> dict[str, Any]:
    plain = {"name": "Legal", "instructions": "Cite.", "replaces_system_prompt": "false", "date_awareness": "day"}
    return {**plain, "visibility": "private", **changes}


def test_a_persona_is_made_and_changed_with_all_that_the_form_has(owner: User, model: Model) -> None:
    client, profile = signed_in(owner), BudgetProfile.objects.create(name="Small")
    more = {"replaces_system_prompt": "true", "model": str(model.pk), "budget_profile": str(profile.pk)}
    lists = {"tools": ["web_search", "open_url"], "starter_messages": "Which clause?\r\n\r\n What duty? \r\n"}
    response = client.post("/personas/new/", form(**more, **lists, reminder="Be exact.", description="For contracts"))
    stored = Persona.objects.get()
    assert response["Location"] == f"/personas/{stored.pk}/"
    assert (stored.owner, stored.replaces_system_prompt, stored.model, stored.budget_profile) == (
        owner,
        True,
        model,
        profile,
    )
    assert (stored.tools, stored.starter_messages) == (["web_search", "open_url"], ["Which clause?", "What duty?"])
    assert (stored.own_reminder, stored.version) == ("Be exact.", 1)
    client.post(f"/personas/{stored.pk}/", form(**more, **lists, reminder="Be exact.", description="For contracts"))
    stored.refresh_from_db()
    assert stored.version == 1
    client.post(f"/personas/{stored.pk}/", form(instructions="One.\r\nTwo."))
    stored.refresh_from_db()
    assert (stored.version, stored.instructions, stored.tools, stored.model) == (2, "One.\nTwo.", [], None)
    assert not Reminder.objects.exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": " "}, "This field is required"),
        ({"instructions": "x" * 100_001}, "at most 100000 characters"),
        ({"tools": ["gone__add"]}, "There is no tool “gone__add”"),
        ({"starter_messages": "x\n" * 13}, "at most 12 lines"),
        ({"model": "01890000-0000-7000-8000-000000000000"}, "Select a valid choice"),
        ({"model": "nonsense"}, "is not a valid UUID"),
        ({"budget_profile": "01890000-0000-7000-8000-000000000000"}, "Select a valid choice"),
        ({"visibility": "public"}, "Select a valid choice"),
        ({"date_awareness": ""}, "This field is required"),
    ],
)
def test_what_cannot_be_saved_is_said_and_nothing_written_is_lost(
    owner: User, changes: dict[str, Any], sentence: str
) -> None:
    body = form(description="words that stay", starter_messages="Which clause?") | changes
    response = signed_in(owner).post("/personas/new/", body)
    assert response.status_code == 400
    shown = words(response)
    assert sentence in shown
    assert "words that stay" in shown
    assert not Persona.objects.exists()


def test_who_saves_over_somebody_elses_change_is_told_once(owner: User, persona: Persona) -> None:
    client, where = signed_in(owner), f"/personas/{persona.pk}/"
    tag = persona.tag
    client.post(where, form(instructions="Theirs.", tag=tag))
    response = client.post(where, form(instructions="Mine.", tag=tag))
    assert response.status_code == 412
    shown = words(response)
    assert "Somebody saved version 2 while you were writing" in shown
    assert "Mine." in shown
    persona.refresh_from_db()
    assert persona.instructions == "Theirs."
    again = re.search(r'name="tag" value="([^"]+)"', shown)
    assert again is not None
    client.post(where, form(instructions="Both.", tag=again[1]))
    persona.refresh_from_db()
    assert (persona.version, persona.instructions) == (3, "Both.")


def test_a_private_persona_is_not_there_for_others(persona: Persona) -> None:
    other = signed_in(User.objects.create_user("otto"))
    where = f"/personas/{persona.pk}/"
    assert other.get(where).status_code == 404
    for path in (where, f"{where}duplicate/", f"{where}plan/", f"{where}delete/"):
        assert other.post(path, form(name="Mine")).status_code == 404, path
    assert "Legal" not in page(other, "/personas/")
    assert other.get("/starters/", {"persona": str(persona.pk)}).status_code == 404
    persona.refresh_from_db()
    assert persona.name == "Legal"


def test_a_shared_persona_is_used_read_and_copied_but_not_changed(owner: User, persona: Persona, model: Model) -> None:
    Persona.objects.filter(pk=persona.pk).update(visibility="workspace", model=model, tools=["web_search"])
    persona.reminders.add(Reminder.objects.create(text="Be exact.", scope="persona"))
    otto = User.objects.create_user("otto")
    other, where = signed_in(otto), f"/personas/{persona.pk}/"
    shown = page(other, where)
    assert "Shared with you by pia." in shown
    assert all(text in shown for text in ("Cite.", "Be exact.", "web_search", f'href="/?persona={persona.pk}"'))
    assert not any(text in shown for text in ('name="instructions"', "Delete…", "Save"))
    assert other.post(where, form(name="Mine")).status_code == 403
    assert other.post(f"{where}delete/").status_code == 403
    assert other.get(f"{where}delete/").status_code == 403
    copy = Persona.objects.get(pk=other.post(f"{where}duplicate/")["Location"].split("/")[2])
    assert (copy.owner, copy.name, copy.visibility, copy.version) == (otto, "Copy of Legal", "private", 1)
    assert (copy.instructions, copy.tools, copy.own_reminder) == ("Cite.", ["web_search"], "Be exact.")
    persona.refresh_from_db()
    assert (persona.name, persona.version) == ("Legal", 1)


def test_ones_own_stand_apart_from_those_that_are_shared(owner: User, persona: Persona) -> None:
    Persona.objects.create(name="Editor", visibility="workspace")
    shown = page(signed_in(owner), "/personas/")
    mine, others = shown.index("Yours</h2>"), shown.index("Shared with you</h2>")
    assert mine < shown.index(">Legal</a>") < others < shown.index(">Editor</a>")


def test_tokens_are_counted_as_the_model_counts_them(owner: User, model: Model) -> None:
    client = signed_in(owner)
    exact = client.post("/personas/count/", {"instructions": "one two three ", "model": str(model.pk)})
    assert "3 tokens · under 1 % of what m can read at once" in words(exact)
    Model.objects.update(tokenizer="")
    guessed = client.post("/personas/count/", {"instructions": "one two three", "model": ""})
    assert "≈ 3 tokens · under 1 % of what m can read at once" in words(guessed)
    Model.objects.update(enabled=False)
    assert words(client.post("/personas/count/", {"instructions": "one"})).strip() == "≈ 1 token"
    assert "Select a valid choice" in words(client.post("/personas/count/", {"model": str(model.pk)}))
    assert "at most 100000" in words(client.post("/personas/count/", {"instructions": "x" * 100_001}))


def test_the_choices_say_what_they_mean(owner: User, persona: Persona, model: Model) -> None:
    save_prompt(user=None, kind=SystemPrompt, text="Be kind to everybody.")
    set_default_profile(profile=BudgetProfile.objects.create(name="Standard"))
    BudgetProfile.objects.create(name="Long", window=12_288, ceiling=7_800, floor=3_000, reserved_output=900)
    BudgetProfile.objects.create(name="Bare", summaries=False)
    shown = page(signed_in(owner), f"/personas/{persona.pk}/").replace("\xa0", " ")
    assert "own instructions (version 1). The rules of those texts do not apply" in shown
    assert "Old messages are summarised above 65 % of the room, down to 25 %." in shown
    assert "It uses at most 12,288 tokens of the model's window. 900 are kept free" in shown
    assert "Old messages are summarised above 7,800 tokens, down to 3,000." in shown
    assert "Old messages are left out when the prompt is full." in shown
    assert "The workspace&#x27;s default (m)" in shown
    assert re.search(r"<option value=.[^>]+>m</option>", shown)
    assert "No search service is set up" in shown


def test_a_model_that_was_switched_off_stays_chosen_and_says_so(owner: User, persona: Persona, model: Model) -> None:
    Persona.objects.filter(pk=persona.pk).update(model=model)
    Model.objects.update(enabled=False)
    client = signed_in(owner)
    assert "m (switched off; the default model answers)" in page(client, f"/personas/{persona.pk}/")
    client.post(f"/personas/{persona.pk}/", form(name="Law", model=str(model.pk)))
    persona.refresh_from_db()
    assert (persona.name, persona.model) == ("Law", model)


def test_the_tools_of_servers_are_offered_and_those_that_are_gone_are_named(
    owner: User, persona: Persona, tmp_path: Path
) -> None:
    program = tmp_path / "sums.py"
    program.write_text(SERVER)
    command = shlex.join([sys.executable, str(program)])
    ToolServer.objects.create(name="sums", kind="stdio", command=command)
    ToolServer.objects.create(name="away", kind="stdio", command=f"{sys.executable} -c pass")
    Persona.objects.filter(pk=persona.pk).update(tools=["sums__add", "sums__lost", "old__tool"])
    client = signed_in(owner)
    at_once = page(client, f"/personas/{persona.pk}/")
    assert 'value="sums__*"' in at_once and 'value="sums__add" checked' in at_once
    fragment = words(client.get("/personas/tools/", {"tools": ["sums__add", "sums__lost", "old__tool"]}))
    assert "Adds two numbers." in fragment and 'value="sums__multiply" >' in fragment
    assert "The tool server away cannot be reached" in fragment
    for name in ("sums__add", "sums__lost", "old__tool"):
        assert f'value="{name}" checked' in fragment
    assert "Not offered at the moment." in fragment and "This server is not set up" in fragment
    client.post(f"/personas/{persona.pk}/", form(tools=["sums__lost", "old__tool", "sums__multiply"]))
    persona.refresh_from_db()
    assert persona.tools == ["sums__lost", "old__tool", "sums__multiply"]


def test_a_persona_with_more_tools_than_its_model_takes_says_so(
    owner: User, persona: Persona, model: Model, tmp_path: Path
) -> None:
    server = Misbehaving([*(tool(f"tool{number}") for number in range(192)), tool("broken", {"type": "array"})])
    row = ToolServer.objects.create(name="big", kind="stdio", command=server.as_process(tmp_path))
    Persona.objects.filter(pk=persona.pk).update(tools=["big__*"])
    client = signed_in(owner)
    assert "192 tools of servers" not in page(client, f"/personas/{persona.pk}/")  # nobody has asked the server yet
    try_tool_server(tool_server=row)
    sentence = "These are 192 tools of servers. The provider of m accepts at most 128 tools in one request"
    assert sentence in page(client, f"/personas/{persona.pk}/")
    listed = words(client.get("/personas/tools/", {"tools": ["big__*"], "model": str(model.pk)}))
    assert sentence in listed and 'value="big__tool191"' in listed
    assert 'big__broken</span>: <span dir="auto">Its input has the type array' in listed
    assert sentence not in words(client.get("/personas/tools/", {"tools": ["big__tool190"]}))
    Persona.objects.filter(pk=persona.pk).update(visibility="workspace")
    assert sentence in page(signed_in(User.objects.create_user("otto")), f"/personas/{persona.pk}/")
    client.post(f"/personas/{persona.pk}/", form(tools=["big__tool190"]))
    persona.refresh_from_db()
    assert persona.tools == ["big__tool190"]
    response = client.post(f"/personas/{persona.pk}/", form(tools=["big__broken"]))
    assert "The tool “big__broken” cannot be offered to a model. Its input has the type array" in words(response)
    Provider.objects.update(max_tools=200)
    assert sentence not in words(client.get("/personas/tools/", {"tools": ["big__*"]}))


def test_deleting_says_who_goes_on_without_it(owner: User, persona: Persona) -> None:
    Persona.objects.filter(pk=persona.pk).update(visibility="workspace")
    mine = Conversation.objects.create(owner=owner, persona=persona)
    Conversation.objects.create(owner=User.objects.create_user("otto"), persona=persona)
    Project.objects.create(owner=owner, name="Contracts", persona=persona)
    client, where = signed_in(owner), f"/personas/{persona.pk}/delete/"
    shown = page(client, where)
    assert "2 conversations use it and continue without the persona. So does 1 project." in shown
    assert client.post(where)["Location"] == "/personas/"
    mine.refresh_from_db()
    assert mine.persona is None


def test_the_plan_of_a_persona_is_what_would_be_sent(owner: User, persona: Persona, model: Model) -> None:
    client, where = signed_in(owner), f"/personas/{persona.pk}/plan/"
    fragment = client.post(where, {"text": "Which clause?"}, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in fragment
    assert all(text in fragment for text in ("Cite.", "Which clause?", "version 1", "What the model will see"))
    whole = client.post(where, {"text": "Which clause?"}).content.decode()
    assert "<html" in whole and "Cite." in whole
    long = client.post(where, {"text": "word " * 9_000}).content.decode()
    assert "shorten the message, or" in long


def test_what_people_write_is_only_text(owner: User, persona: Persona, model: Model) -> None:
    fields = {"name": EVIL, "description": EVIL, "instructions": EVIL, "starter_messages": [EVIL]}
    Persona.objects.filter(pk=persona.pk).update(visibility="workspace", tools=[EVIL[:30]], **fields)
    other = signed_in(User.objects.create_user("otto"))
    pk = persona.pk
    for client in (signed_in(owner), other):
        for url in ("/personas/", f"/personas/{pk}/", f"/?persona={pk}", f"/starters/?persona={pk}"):
            shown = page(client, url)
            assert "<script>alert" not in shown, url
            assert "&lt;script&gt;" in shown, url


def test_starter_messages_follow_the_persona_and_work_as_links(owner: User, persona: Persona, model: Model) -> None:
    Persona.objects.filter(pk=persona.pk).update(starter_messages=["Which clause & when?"])
    client = signed_in(owner)
    shown = page(client, f"/?persona={persona.pk}")
    link = f"?persona={persona.pk}&amp;text=Which+clause+%26+when%3F"
    assert f'href="{link}"' in shown
    assert ">Which clause &amp; when?</textarea>" in page(client, "/" + link.replace("&amp;", "&"))
    assert link in page(client, f"/starters/?persona={persona.pk}")
    without = page(client, "/starters/?persona=")
    assert "Which clause" not in without and without.count("data-starter=") == 4
    assert "data-starter" not in page(client, "/starters/?persona=&project=any")
    empty = Conversation.objects.create(owner=owner, persona=persona)
    assert 'data-starter="Which clause &amp; when?"' in page(client, f"/c/{empty.pk}/")
