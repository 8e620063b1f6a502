"""Imports of exports from Open WebUI, LibreChat, ChatGPT and Claude: what comes, what is named as lost, and undo."""

import io
import json
import random
import zipfile
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.test import Client

from accounts.models import User
from chat.conversations import import_undo, services
from chat.conversations.importing import jobs
from chat.memory.models import Fact
from chat.memory.services import add_fact, correct_fact
from chat.models import Attachment, Conversation, Import, ImportedRow, Message
from chat.models.tree import branch_rows
from core.sentences import Sentence
from files.models import File
from files.services import open_blob
from llm.models import Model, Provider
from personas.models import Persona
from projects.models import Project
from projects.saved_prompts.models import SavedPrompt
from tests.chat.exports import as_json, chatgpt, claude, node
from tests.chat.foreign_exports import (
    START,
    as_lines,
    branches_here,
    libre_branches,
    libre_export,
    libre_message,
    libre_story,
    tea,
    webui_branches,
    webui_chat,
    webui_message,
)

pytestmark = pytest.mark.django_db
Upload = Callable[..., Import]
PIXEL = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\10\6\0\0\0\x1f\x15\xc4\x89"


@pytest.fixture
def user(settings: Any, tmp_path: Path) -> User:
    settings.MEDIA_ROOT = tmp_path
    return User.objects.create_user("mover")


@pytest.fixture
def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def waiting(user: User, content: bytes, name: str = "export.json") -> Import:
    """Return an import that no worker has claimed yet."""
    blob = default_storage.save("imports/x", ContentFile(content))
    return Import.objects.create(owner=user, name=name, blob=blob)


@pytest.fixture
def upload(user: User) -> Upload:
    def through(content: bytes, name: str = "export.json") -> Import:
        job = waiting(user, content, name)
        jobs.run(job.pk)
        job.refresh_from_db()
        return job

    return through


@pytest.fixture
def model() -> Model:
    provider = Provider.objects.create(name="Local", kind=Provider.Kind.OPENAI, base_url="http://127.0.0.1:9")
    return Model.objects.create(provider=provider, name="llama3.1:8b", context_window=8_000)


def why(job: Import, number: int = 0) -> str:
    return Sentence.load(job.results[number]["why"]).english


def shown(user: User) -> list[tuple[str, str]]:
    place = Conversation.objects.get(owner=user)
    return [(row.role, row.text) for row in branch_rows(place.leaf_id).order_by("depth")]


@pytest.mark.parametrize("form", ["list", "lines", "one"])
def test_a_chat_of_open_webui_keeps_messages_order_branches_and_times(
    upload: Upload, user: User, model: Model, form: str
) -> None:
    chat = tea(archived=True, pinned=True, meta={"tags": ["hot_drinks"]}, params={"system": "Be brief."})
    contents = {"list": as_json(chat), "lines": as_lines(chat), "one": json.dumps(chat, indent=1).encode()}
    job = upload(contents[form])
    assert (job.status, job.imported, job.skipped, job.known) == ("done", 1, 0, 0)
    place = Conversation.objects.get(owner=user)
    assert branches_here(place) == webui_branches(chat)
    assert shown(user)[-1] == ("assistant", "It is strong.")
    assert (place.title, place.archived, bool(place.pinned)) == ("Tea", True, True)
    assert [tag.name for tag in place.tags.all()] == ["hot drinks"]
    assert (place.created, place.updated) == (
        datetime.fromtimestamp(START, UTC),
        datetime.fromtimestamp(START + 900, UTC),
    )
    models = {row.text: row.model for row in Message.objects.filter(conversation=place)}
    assert models["Green."] == model and models["Black."] is None
    assert "“gpt-4o”" in why(job) and "Instructions before the conversation: 1." in why(job)


def test_a_chat_of_the_first_versions_is_a_list_of_messages(upload: Upload, user: User) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "model": "x"}]
    upload(as_json({"id": "old", "title": "Old", "chat": {"title": "Old", "messages": messages}}))
    assert shown(user) == [("user", "Hi"), ("assistant", "Hello")]


def test_reasoning_is_kept_apart_and_tools_are_named_as_lost(upload: Upload, user: User) -> None:
    older = (
        '<details type="reasoning" done="true" duration="3">\n<summary>Thought for 3 seconds</summary>\n'
        "> Is it &lt;cold&gt;?\n> No.\n</details>\n"
        'It is warm.\n<details type="tool_calls" done="true" id="c" name="weather" arguments="&quot;{}&quot;">\n'
        "<summary>Tool Executed</summary>\n</details>\n"
        "See <details>this</details>."
    )
    output = [
        {"type": "reasoning", "content": [{"type": "output_text", "text": "Let me count."}], "summary": None},
        {"type": "function_call", "name": "sum", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": []},
        {"type": "open_webui:code_interpreter", "lang": "python", "code": "1 + 1", "output": "2"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two."}]},
    ]
    chat = webui_chat(
        "r",
        [
            webui_message("q1", None, "user", "Weather?", 0),
            webui_message("a1", "q1", "assistant", older, 1),
            webui_message("q2", "a1", "user", "1 + 1?", 2),
            webui_message("a2", "q2", "assistant", "", 3, output=output),
        ],
        "a2",
    )
    job = upload(as_json(chat))
    texts = [text for _, text in shown(user)]
    assert texts[1] == "It is warm.\n\nSee <details>this</details>."
    assert texts[3] == "```python\n1 + 1\n```\n\nTwo."
    parts = [row.parts[0] for row in Message.objects.filter(role="assistant").order_by("depth")]
    assert parts[0] == {"type": "reasoning", "text": "Is it <cold>?\nNo."}
    assert parts[1] == {"type": "reasoning", "text": "Let me count."}
    assert "Tool calls whose results were not imported: 3." in why(job)


def test_files_come_by_their_bytes_by_their_text_or_by_name(upload: Upload, user: User) -> None:
    report = {"id": "f1", "filename": "report.pdf", "data": {"content": "The fee is 42."}}
    files = [
        {"type": "image", "url": f"data:image/png;base64,{b64encode(PIXEL).decode()}"},
        {"type": "file", "id": "f1", "name": "report.pdf", "file": report},
        {"type": "file", "id": "f2", "name": "lost.docx"},
        {"type": "collection", "id": "k1", "name": "Handbook"},
    ]  # fmt: skip
    chat = webui_chat("f", [webui_message("q", None, "user", "Look.", 0, files=files)], "q")
    job = upload(as_json(chat))
    rows = Attachment.objects.filter(message__conversation__owner=user).order_by("ordinal")
    assert [row.name for row in rows] == ["picture.png", "report.pdf.txt", "lost.docx"]
    contents = [open_blob(file=row.file).read() if row.file else None for row in rows]
    assert contents == [PIXEL, b"The fee is 42.", None]
    for sentence in (
        "Files without content, imported by name only: 1.",
        "Files imported as text only: 1.",
        "References to collections, notes and other conversations: 1.",
    ):
        assert sentence in why(job)


def test_an_exported_folder_becomes_a_project_once(upload: Upload, user: User) -> None:
    upload(as_json(tea("one")), "folder-Kitchen and tea-export-1700000000000.json")
    upload(as_json(tea("two")), "folder-Kitchen and tea-export-1700000000001.json")
    assert Project.objects.get(owner=user).name == "Kitchen and tea"
    assert Conversation.objects.filter(project__owner=user).count() == 2


def test_prompts_models_and_memories_come_from_their_own_exports(upload: Upload, user: User, model: Model) -> None:
    prompt = {
        "command": "/mail",
        "user_id": "u",
        "name": "Mail",
        "content": 'A {{ tone | select:options=["kind","short"] }} mail about {{subject}}.',
        "access_grants": [],
    }
    persona = {
        "id": "cook",
        "user_id": "u",
        "base_model_id": "llama3.1:8b",
        "name": "Cook",
        "params": {"system": "You cook for {{USER_NAME}}.", "temperature": 0.2},
        "meta": {
            "description": "Knows recipes.",
            "suggestion_prompts": [{"title": ["Soup", ""], "content": "A soup, please."}],
            "toolIds": ["timer"],
        },
        "is_active": True,
        "updated_at": START,
        "created_at": START,
    }
    override: dict[str, Any] = {"id": "llama3.1:8b", "base_model_id": None, "name": "Llama", "params": {}, "meta": {}}
    memories = [
        {"id": f"m{n}", "user_id": "u", "content": text, "updated_at": START, "created_at": START}
        for n, text in enumerate(("Drinks tea.", "Has a\ncat."))
    ]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("prompts-export-1.json", as_json(prompt))
        writer.writestr("models-export-1.json", as_json(persona, override))
        writer.writestr("memories.json", as_json(*memories))
        writer.writestr("chat-export-1.json", as_json(tea()))
    job = upload(archive.getvalue(), "moving.zip")
    assert (job.status, job.imported, job.skipped) == ("done", 1, 1)
    saved = SavedPrompt.objects.get(owner=user)
    assert (saved.name, saved.text) == ("Mail", "A {{tone:kind|short}} mail about {{subject}}.")
    cook = Persona.objects.get(owner=user)
    assert (cook.name, cook.model, cook.description, cook.starter_messages) == (
        "Cook", model, "Knows recipes.", ["A soup, please."],
    )  # fmt: skip
    assert cook.instructions == "You cook for \\{{USER_NAME}}."
    file = File.objects.get(owner=user)
    assert open_blob(file=file).read() == b"- Drinks tea.\n- Has a cat.\n"
    sentences = " ".join(why(job, number) for number in range(len(job.results)))
    assert "“Cook” was imported without: tools." in sentences and "only settings of a model" in sentences
    again = upload(archive.getvalue(), "moving.zip")
    assert (again.imported, again.known) == (0, 1)
    assert [rows.count() for rows in (SavedPrompt.objects, Persona.objects, File.objects)] == [1, 1, 1]


@pytest.mark.parametrize("recursive", [False, True])
def test_a_conversation_of_librechat_keeps_messages_order_branches_and_times(
    upload: Upload, user: User, recursive: bool
) -> None:
    messages = libre_story()
    job = upload(json.dumps(libre_export(messages, recursive=recursive)).encode())
    assert (job.status, job.imported) == ("done", 1)
    assert branches_here(Conversation.objects.get(owner=user)) == libre_branches(messages)
    assert shown(user) == [("user", "A long story"), ("assistant", "Long ago.")]
    again = upload(json.dumps(libre_export(messages, recursive=not recursive)).encode())
    assert (again.imported, again.known) == (0, 1)


def test_a_deep_tree_of_librechat_is_read(upload: Upload, user: User) -> None:
    messages = [libre_message(f"m{n}", f"m{n - 1}" if n else None, n % 2 == 0, f"text {n}", 1) for n in range(1_500)]
    nested: list[dict[str, Any]] = []
    for each in reversed(messages):
        nested = [{**each, "children": nested}]
    content = b"".join(piece.encode() for piece in iterated(libre_export([], recursive=True), nested))
    assert upload(content).imported == 1
    assert len(shown(user)) == 1_500


def iterated(export: dict[str, Any], nested: list[dict[str, Any]]) -> list[str]:
    """Return the JSON of an export whose tree is too deep for the recursion of `json.dumps`."""
    pieces = [json.dumps({**export, "messagesTree": []}).removesuffix("[]}"), "["]
    closing = "]}"
    while nested:
        (each,) = nested
        nested = each["children"]
        pieces += [json.dumps({**each, "children": []}).removesuffix("[]}"), "["]
        closing = "]}" + closing
    return [*pieces, closing]


def test_parts_of_librechat_that_are_no_words(upload: Upload, user: User) -> None:
    content = [
        {"type": "think", "think": "Hm."},
        {"type": "text", "text": "Here:"},
        {"type": "tool_call", "tool_call": {"id": "c", "name": "draw", "args": "{}", "output": ""}},
        {"type": "image_file", "image_file": {"file_id": "i", "filename": "cat.png", "filepath": "/images/u/cat.png"}},
    ]
    messages = [
        libre_message("m1", None, True, "Draw", 1, quotes=["a cat"], files=[{"file_id": "f", "filename": "cat.pdf"}]),
        libre_message("m2", "m1", False, "", 2, content=content, feedback={"rating": "thumbsUp"}),
        libre_message("m3", "m2", True, "Again", 3),
        libre_message("m4", "m3", False, "429", 4, error=True),
    ]
    job = upload(json.dumps(libre_export(messages)).encode())
    assert shown(user) == [("user", "> a cat\n\nDraw"), ("assistant", "Here:"), ("user", "Again")]
    assert [row.name for row in Attachment.objects.order_by("id")] == ["cat.pdf", "cat.png"]
    assert Message.objects.get(parts__0__type="reasoning").parts[0]["text"] == "Hm."
    for sentence in (
        "Tool calls",
        "Ratings of answers: 1.",
        "Errors instead of an answer: 1.",
        "imported by name only: 2.",
    ):
        assert sentence in why(job)


def test_a_preset_of_librechat_becomes_a_persona(upload: Upload, user: User) -> None:
    preset = {"presetId": "p", "endpoint": "openAI", "title": "Editor", "model": "gpt-4o", "promptPrefix": "Cut words."}
    job = upload(json.dumps(preset).encode())
    persona = Persona.objects.get(owner=user)
    assert (persona.name, persona.instructions, persona.model) == ("Editor", "Cut words.", None)
    assert "no model “gpt-4o”" in why(job)


def test_pictures_code_and_citations_of_chatgpt_come_along(upload: Upload, user: User) -> None:
    mark = "\ue200cite\ue202turn0search1\ue201"
    reference = {"matched_text": mark, "alt": "([News](https://example.com/rice))", "items": []}
    bare = "\ue200cite\ue202turn0search9\ue201"
    cited = {"content_references": [reference], "model_slug": "gpt-4o"}
    uploaded, drawn = (
        {"content_type": "image_asset_pointer", "asset_pointer": address}
        for address in ("file-service://file-Ab12Cd34", "sediment://file_00000abc")
    )
    row = chatgpt(
        "gpt-2",
        [
            node("q1", "root", "user", uploaded, content_type="multimodal_text"),
            node("a1", "q1", "assistant", "It is a cat."),
            node("q2", "a1", "user", "Rice?"),
            node("a2", "q2", "assistant", f"Rice fell. {mark} Much.{bare}", metadata=cited),
            node("q3", "a2", "user", "Code?"),
            node("a3", "q3", "assistant", content_type="code"),
            node("q4", "a3", "user", "Draw."),
            node("call", "q4", "assistant", "{}", recipient="dalle.text2im", content_type="code"),
            node("pic", "call", "tool", drawn, content_type="multimodal_text"),
            node("a4", "pic", "assistant", "Here."),
        ],
        "a4",
    )  # fmt: skip
    row["mapping"]["a3"]["message"]["content"] = {"content_type": "code", "language": "python", "text": "print(1)"}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("conversations.json", as_json(row))
        writer.writestr("file-Ab12Cd34-cat.png", PIXEL)
        writer.writestr("dalle-generations/file_00000abc-drawn.webp", b"RIFF")
    job = upload(archive.getvalue(), "chatgpt.zip")
    assert shown(user)[:6] == [
        ("user", ""),
        ("assistant", "It is a cat."),
        ("user", "Rice?"),
        ("assistant", "Rice fell. ([News](https://example.com/rice)) Much."),
        ("user", "Code?"),
        ("assistant", "```python\nprint(1)\n```"),
    ]
    files = {row.name: row.file for row in Attachment.objects.all()}
    assert {name: open_blob(file=file).read() for name, file in files.items() if file} == {
        "picture.png": PIXEL, "picture.webp": b"RIFF",
    }  # fmt: skip
    assert "Citation marks without a link: 1." in why(job) and "Tool calls" in why(job)
    assert "“gpt-4o”" in why(job)


def test_old_citations_of_chatgpt_become_links(upload: Upload, user: User) -> None:
    text = "Rice fell【6†source】 and rose【7†source】."
    start = text.index("【6")
    citation = {"start_ix": start, "end_ix": start + 10, "metadata": {"title": "News", "url": "https://example.com/6"}}
    upload(
        as_json(
            chatgpt(
                "old",
                [
                    node("q", "root", "user", "Rice?"),
                    node("a", "q", "assistant", text, metadata={"citations": [citation]}),
                ],
                "a",
            )
        )
    )
    assert shown(user)[1][1] == "Rice fell([News](<https://example.com/6>)) and rose."


def test_pasted_texts_and_artifacts_of_claude_come_along(upload: Upload, user: User) -> None:
    row = claude("claude-2")
    question, answer, last = row["chat_messages"]
    question["attachments"] = [{"file_name": "", "file_type": "txt", "extracted_content": "Pasted words."}]
    question["content"] = []
    question["text"] = ""
    creation = {
        "command": "create",
        "id": "art",
        "type": "application/vnd.ant.code",
        "language": "python",
        "title": "Sum",
        "content": "a = 1",
    }
    changed = {"command": "update", "id": "art", "old_str": "1", "new_str": "2"}
    lost = {"command": "update", "id": "other", "old_str": "1", "new_str": "2"}
    answer["content"] = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Here it is."},
        *({"type": "tool_use", "name": "artifacts", "input": call} for call in (creation, changed, lost)),
        {"type": "tool_use", "name": "web_search", "input": {}},
    ]
    last["content"] = [{"type": "text", "text": "Thanks."}]
    job = upload(as_json(row))
    assert shown(user)[0] == ("user", "")
    attachment = Attachment.objects.get(message__depth=0)
    assert attachment.name == "Pasted text.txt" and attachment.file is not None
    assert open_blob(file=attachment.file).read() == b"Pasted words."
    assert shown(user)[1][1] == ("Here it is.\n\n**Sum**\n\n```python\na = 1\n```\n\n**Sum**\n\n```python\na = 2\n```")
    assert Message.objects.get(depth=1).parts[0] == {"type": "reasoning", "text": "Hm."}
    assert "Changes to artifacts without the changed text: 1." in why(job)
    assert "Tool calls whose results were not imported: 1." in why(job)


def many(number: int) -> bytes:
    return as_json(*(tea(f"many-{n}", title=f"Tea {n}") for n in range(number)))


def test_an_import_that_is_interrupted_anywhere_completes_without_doubles(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = many(40)
    job = waiting(user, content)
    chance = random.Random(7)
    original = jobs._import_conversation
    for _ in range(20):
        left = Conversation.objects.filter(owner=user).count() + chance.randrange(1, 3)

        def dies(*args: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise SystemExit
            return original(*args)

        with monkeypatch.context() as broken:
            broken.setattr(jobs, "_import_conversation", dies)
            with pytest.raises(SystemExit):
                jobs.run(job.pk)
        Import.objects.filter(pk=job.pk).update(heartbeat=datetime(2020, 1, 1, tzinfo=UTC))
    jobs.run(job.pk)
    job.refresh_from_db()
    assert (job.status, job.imported, job.known, job.skipped) == ("done", 40, 0, 0)
    assert Conversation.objects.filter(owner=user).count() == 40
    assert Message.objects.filter(conversation__owner=user).count() == 200
    assert len({result["why"] for result in job.results}) == 1 and "“gpt-4o”" in why(job)


def test_a_paused_import_stops_and_goes_on(user: User, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = waiting(user, many(10))
    monkeypatch.setattr(jobs, "SAVE_INTERVAL", 0.0)
    original = jobs._import_conversation

    def pauses(*args: Any) -> Any:
        if Conversation.objects.filter(owner=user).count() == 4:
            assert browser.post(f"/api/v1/imports/{job.pk}/pause/").json()["status"] == "paused"
        return original(*args)

    with monkeypatch.context() as paused:
        paused.setattr(jobs, "_import_conversation", pauses)
        jobs.run(job.pk)
    assert Import.objects.get(pk=job.pk).status == "paused"
    assert Conversation.objects.filter(owner=user).count() == 5
    page = browser.get(f"/import/{job.pk}/").content.decode()
    assert "Paused" in page and "Go on" in page and "Undo…" in page
    assert browser.post(f"/import/{job.pk}/pause/").status_code == 409
    assert browser.post(f"/import/{job.pk}/retry/").status_code == 302
    jobs.run(job.pk)
    job.refresh_from_db()
    assert (job.status, job.imported) == ("done", 10)
    assert Conversation.objects.filter(owner=user).count() == 10


def test_an_undone_import_takes_away_what_it_has_brought(upload: Upload, user: User, browser: Client) -> None:
    before = Conversation.objects.create(owner=user, title="Mine")
    row = claude("mine")
    persona = {"presetId": "p", "endpoint": "x", "title": "Editor", "promptPrefix": "Cut words."}
    content = as_json(tea("one"), tea("two"), row, persona, {"command": "/hi", "content": "Say hi."})
    job = upload(content, "folder-Kitchen-export-1700000000000.json")
    assert (job.imported, ImportedRow.objects.filter(job=job).count()) == (3, 7)
    continued = Conversation.objects.get(owner=user, imported_from="openwebui:two")
    Message.objects.create(conversation=continued, owner=user, parent=continued.leaf, depth=4, role="user", parts=[])
    assert browser.post(f"/import/{job.pk}/undo/").status_code == 302
    assert "being removed" in browser.get(f"/import/{job.pk}/").content.decode()
    import_undo.run(job.pk)
    job.refresh_from_db()
    assert job.status == "undone"
    assert set(Conversation.objects.filter(owner=user, deleted=None)) == {before, continued}
    assert Project.objects.filter(owner=user).exists()  # the continued conversation is in it
    assert not Persona.objects.filter(owner=user).exists() and not SavedPrompt.objects.filter(owner=user).exists()
    assert not File.objects.filter(owner=user).exists()
    sentences = {result["title"]: why(job, number) for number, result in enumerate(job.results)}
    assert sentences["With Claude"] == "It was removed again."
    assert "It was continued here, so it stays." in sentences.values()
    assert browser.post(f"/api/v1/imports/{job.pk}/undo/").status_code == 409
    again = upload(content, "folder-Kitchen-export-1700000000000.json")
    assert (again.imported, again.known) == (2, 1)


def test_an_undone_import_forgets_the_facts_that_it_has_brought(upload: Upload, user: User) -> None:
    add_fact(user=user, text="Likes tea")
    texts = ("Lives in Hue", "Likes tea", "Tea: likes", "Works as a baker")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("manifest.json", "{}")
        writer.writestr("memory.json", json.dumps([{"text": text, "status": "kept"} for text in texts]))
    job = upload(archive.getvalue(), "glasshouse.zip")
    assert why(job, 0) == "2 imported, 2 here already, 0 skipped."
    correct_fact(user=user, fact=Fact.objects.get(owner=user, text="Works as a baker"), text="Works as a cook")
    import_undo.undo_import(user=user, job=job)
    import_undo.run(job.pk)
    left = Fact.objects.filter(owner=user).exclude(status="forgotten")
    assert {fact.text for fact in left} == {"Likes tea", "Works as a baker", "Works as a cook"}
    assert job.rows.count() == 1  # the fact that was corrected here stays


def test_a_second_worker_goes_on_with_an_undo(upload: Upload, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    job = upload(many(6))
    import_undo.undo_import(user=user, job=job)
    original = services.delete_conversation

    def dies(*, user: User, conversation: Conversation) -> None:
        if Conversation.objects.filter(owner=user, deleted=None).count() == 3:
            raise SystemExit
        original(user=user, conversation=conversation)

    with monkeypatch.context() as broken:
        broken.setattr("chat.conversations.import_undo.delete_conversation", dies)
        with pytest.raises(SystemExit):
            import_undo.run(job.pk)
    import_undo.run(job.pk)
    job.refresh_from_db()
    assert job.status == "undone" and not Conversation.objects.filter(owner=user, deleted=None).exists()


def test_nobody_pauses_or_undoes_the_imports_of_others(upload: Upload) -> None:
    job = upload(many(1))
    stranger = Client()
    stranger.force_login(User.objects.create_user("stranger"))
    for act in ("pause", "undo"):
        assert stranger.post(f"/api/v1/imports/{job.pk}/{act}/").status_code == 404
        assert stranger.post(f"/import/{job.pk}/{act}/").status_code == 404
