"""Files of a project that are not sent whole: their listing and passages, for models with tools and without."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from chat.context.types import ContextError, ContextMessage
from chat.models import Summary, Turn
from chat.models.conversation_state import ChatScope
from chat.models.summary import NO_MARKS
from chat.prompts import builder
from chat.prompts.cards import cards_of
from chat.prompts.turn_context import base_context
from chat.prompts.wording import status_line
from chat.web.persona_and_project import project_meter
from files.models import File, FileText
from llm.models import Model, Provider
from llm.tokens import CATCH_ALL
from llm.types.model_call import ToolCall
from personas.models import BudgetProfile, Persona
from projects.models import Project, ProjectFile
from tests.application import Application
from tests.chat.citing import ANSWER, SEARCH, ask
from tests.chat.conversations import past
from tests.chat.documents import PREFIX, ask_and_wait, picture, sent, upload
from tests.chat.growing import FILLER, settled
from tests.conftest import Person
from tests.product import until


def test_a_picture_of_a_project_is_a_quiet_row_for_a_model_that_does_not_see(
    application: Application, person: Person
) -> None:
    file = upload(person, "shot.png", picture())
    place = put_together(person, file)
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": "Now?"}, expect=200)
    [source] = [each for each in plan["sources"] if each["kind"] == "project_file"]
    assert (source["state"], source["reason"]) == ("left_out", "no_vision")
    assert "file_listing" not in plan["sections"] and "project_files" not in plan["sections"]
    assert "shot.png" not in line_of(plan) and line_of(plan) == "Everything you gave fits"
    [row] = [row for card in cards_of(plan, NO_MARKS) for row in card.rows if row.title == "shot.png"]
    assert row.quiet and row.file == "", "there is no text of it to read"


def test_pictures_of_a_project_go_to_a_model_that_sees_below_its_files(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row, vision=True)
    note, shot = upload(person, "note.txt", b"Twelve apples."), upload(person, "shot.png", picture())
    place, mark = put_together(person, shot, note), uuid4().hex
    body = {"text": f"What is there? {mark}", "model": str(model.pk)}
    plan = person.caller.post(f"conversations/{place}/plan/", body, expect=200)
    turn = ask_and_wait(person, place, body["text"], models=[str(model.pk)])
    messages = sent(application, mark)
    at = next(number for number, each in enumerate(messages) if "Twelve apples." in str(each["content"]))
    parts = messages[at + 1]["content"]
    assert [part["type"] for part in parts].count("image_url") == 1
    assert "These images belong to the project: shot.png." in [part.get("text") for part in parts]
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert report["used"] == plan["used"]
    assert files_of(report) == {"shot.png": ("full", None), "note.txt": ("full", None)}
    assert [each["text"] for each in report["messages"]][at : at + 2] == [
        messages[at]["content"], "These images belong to the project: shot.png.",
    ]  # fmt: skip
    later = person.caller.post(f"conversations/{place}/plan/", {**body, "files": [shot["id"]]}, expect=200)
    shots = [each for each in later["sources"] if each["title"] == "shot.png"]
    assert {(each["kind"], each["state"], each["reason"]) for each in shots} == {
        ("image", "full", None), ("project_file", "full", "attached"),
    }  # fmt: skip


def test_pictures_of_a_project_never_push_out_its_files(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = counted_model(scripted_model_row, 4_000, vision=True)
    long, wide = upload(person, "long.txt", b"many words " * 650), upload(person, "wide.png", picture(1_024, 640))
    tiny = upload(person, "tiny.png", picture())
    place = put_together(person, wide, tiny, long)
    body = {"text": "Now?", "model": str(model.pk)}
    plan = person.caller.post(f"conversations/{place}/plan/", body, expect=200)
    assert files_of(plan) == {
        "long.txt": ("full", None), "tiny.png": ("full", None), "wide.png": ("left_out", "project_image"),
    }  # fmt: skip
    longer = person.caller.post(
        f"conversations/{place}/plan/", {**body, "text": f"Now? {'and now ' * 600}"}, expect=200
    )
    assert files_of(longer)["long.txt"][0] in ("full", "by_search") and longer["fits"]
    if files_of(longer)["long.txt"][0] == "by_search":
        assert files_of(longer)["tiny.png"] == ("left_out", "project_image"), "pictures give way first"
    meter = project_meter(user=person.user, project=Project.objects.get(name="Together", owner=person.user))
    assert meter.unseen == 2 and [each.unseen for each in meter.models if each.model == model] == [1]


def line_of(plan: Any) -> str:
    """The sentence of the line under the composer, without the share."""
    return status_line(plan, "Everything you gave fits").words


def small_model(scripted_model_row: Model, **abilities: Any) -> Model:
    return Model.objects.create(
        provider=scripted_model_row.provider, name=f"scripted-{uuid4().hex[:8]}", context_window=4_000, **abilities
    )


def put_together(person: Person, *files: dict[str, Any]) -> str:
    """A conversation in a new project of these files."""
    project = person.caller.post("projects/", {"name": "Together"}, expect=201)
    for file in files:
        person.caller.post(f"projects/{project['id']}/files/", {"file": file["id"]}, expect=201)
    place: str = person.caller.post("conversations/", {"project": project["id"]}, expect=201)["id"]
    return place


def searchable(person: Person, file: dict[str, Any]) -> None:
    until(lambda: person.caller.get(f"files/{file['id']}/")["searchable"], "it has been indexed")


def test_a_model_without_tools_is_given_what_a_search_finds_in_a_project_that_does_not_fit(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row)
    filler = " ".join(f"Clause {number} is about nothing in particular." for number in range(600))
    big = upload(person, "contract.txt", f"{filler} The platypus fee is 4711 euros. {filler}".encode())
    searchable(person, big)
    place, mark = put_together(person, big), uuid4().hex
    text = f"How much is the platypus fee? {mark}"
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": text, "model": str(model.pk)}, expect=200)
    turn = ask_and_wait(person, place, text, models=[str(model.pk)])
    listing, _, passages = sent(application, mark)[1]["content"].partition(f"\n\n{PREFIX}\n")
    assert "- 1: contract.txt" in listing and "by search" not in listing
    [document] = json.loads(passages)["documents"]
    assert document["document"] == 1 and "4711 euros" in document["contents"]
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert report["used"] == plan["used"] <= report["limit"]
    assert [each["text"] for each in report["messages"]] == [each["content"] for each in sent(application, mark)]


def test_a_model_with_tools_searches_by_itself(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row, tools=True)
    big = upload(person, "big.txt", b"many words " * 1_500)
    searchable(person, big)
    place, mark = put_together(person, big), uuid4().hex
    ask_and_wait(person, place, f"How many? {mark}", models=[str(model.pk)])
    listing = sent(application, mark)[1]["content"]
    assert "Search them" in listing and "many words" not in listing


def test_the_list_of_a_project_with_many_files_leaves_room_for_the_question(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row)
    files = File.objects.bulk_create(
        File(
            owner=person.user,
            name=f"note-{number}.txt",
            status="ready",
            searchable=True,
            tokens={CATCH_ALL: 500},
            size=1,
        )
        for number in range(300)
    )
    FileText.objects.bulk_create(FileText(file=file, text="many words " * 250) for file in files)
    project = Project.objects.create(owner=person.user, name="Many")
    ProjectFile.objects.bulk_create(
        ProjectFile(project=project, file=file, added_by=person.user, ordinal=number)
        for number, file in enumerate(files)
    )
    place = person.caller.post("conversations/", {"project": str(project.pk)}, expect=201)["id"]
    mark = uuid4().hex
    ask_and_wait(person, place, f"What now? {mark}", models=[str(model.pk)])
    lines = sent(application, mark)[1]["content"].splitlines()[1:]
    assert "note-0.txt" in lines[0] and 2 < len(lines) < 30
    assert lines[-1] == f"- and {300 - (len(lines) - 1)} more files"


def counted_model(scripted_model_row: Model, window: int, **abilities: Any) -> Model:
    """Return a model with a known tokenizer, so that a test can compute what fits."""
    return Model.objects.create(
        provider=scripted_model_row.provider,
        name=f"scripted-{uuid4().hex[:8]}",
        context_window=window,
        tokenizer="o200k_base",
        **abilities,
    )


def files_of(plan: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {
        each["title"]: (each["state"], each["reason"]) for each in plan["sources"] if each["kind"] == "project_file"
    }


def test_a_project_gives_way_to_a_message_that_does_not_fit_beside_it(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = counted_model(scripted_model_row, 12_288, tools=True)
    files = [
        upload(person, name, b"many words " * size)
        for name, size in (("small.txt", 400), ("large.txt", 1_700), ("pinned.txt", 900))
    ]
    place = put_together(person, *files)
    path = f"projects/{person.caller.get(f'conversations/{place}/')['project']}/files/{files[2]['id']}/"
    person.caller.http.patch(path, json={"pinned": True}).raise_for_status()

    def plan(words: int) -> dict[str, Any]:
        body = {"text": "word " * words, "model": str(model.pk)}
        planned: dict[str, Any] = person.caller.post(f"conversations/{place}/plan/", body, expect=200)
        assert planned["fits"], planned["error"]
        assert planned["used"] <= planned["limit"]
        return files_of(planned)

    inline, away = ("full", None), ("by_search", "no_room")
    assert plan(1_000) == {"small.txt": inline, "large.txt": inline, "pinned.txt": inline}
    assert plan(5_000) == {"small.txt": inline, "large.txt": away, "pinned.txt": inline}
    assert plan(8_300) == {"small.txt": away, "large.txt": away, "pinned.txt": inline}
    assert plan(10_000) == {"small.txt": away, "large.txt": away, "pinned.txt": away}


def test_a_file_of_the_project_that_is_attached_is_sent_once(application: Application, person: Person) -> None:
    file, other = upload(person, "manual.txt", b"Press the green button."), upload(person, "other.txt", b"Not now.")
    place, mark = put_together(person, file, other), uuid4().hex
    turn = ask_and_wait(person, place, f"Which button? {mark}-1", files=[file["id"]])
    assert json.dumps(sent(application, f"{mark}-1")).count("green button") == 1
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert files_of(report) == {"manual.txt": ("full", "attached"), "other.txt": ("full", None)}
    assert [each["text"] for each in report["messages"]] == [each["content"] for each in sent(application, f"{mark}-1")]
    turn = ask_and_wait(person, place, f"And then? {mark}-2")
    assert json.dumps(sent(application, f"{mark}-2")).count("green button") == 1
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert files_of(report) == {"manual.txt": ("full", None), "other.txt": ("full", None)}
    [attached] = [each for each in report["sources"] if each["kind"] == "file"]
    assert (attached["title"], attached["state"], attached["reason"]) == ("manual.txt", "full", "in_project")
    assert [each["text"] for each in report["messages"]] == [each["content"] for each in sent(application, f"{mark}-2")]


def test_a_file_over_the_projects_share_says_why_it_is_searched_also_when_it_is_pinned(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row)
    files = [upload(person, f"{name}.txt", f"{name} ".encode() + b"many words " * 500) for name in ("first", "second")]
    place = put_together(person, *files)
    project = person.caller.get(f"conversations/{place}/")["project"]
    for file in files:
        path = f"projects/{project}/files/{file['id']}/"
        person.caller.http.patch(path, json={"pinned": True}).raise_for_status()
    body = {"text": "Now?", "model": str(model.pk)}
    plan = person.caller.post(f"conversations/{place}/plan/", body, expect=200)
    assert files_of(plan) == {"first.txt": ("full", None), "second.txt": ("by_search", "over_share")}


def test_the_meter_of_a_project_counts_what_else_must_be_sent(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    place = put_together(person, upload(person, "long.txt", b"many words " * 700))
    project = Project.objects.get(pk=person.caller.get(f"conversations/{place}/")["project"])
    model = counted_model(scripted_model_row, 4_000)
    project.persona = Persona.objects.create(owner=person.user, name="Narrow", model=model)
    assert [each.title for each in project_meter(user=person.user, project=project).files.inline] == ["long.txt"]
    project.persona.budget_profile = BudgetProfile.objects.create(name=uuid4().hex, expected_user=2_000)
    meter = project_meter(user=person.user, project=project)
    assert [each.title for each in meter.files.by_search] == ["long.txt"]
    assert [each.whole for each in meter.models if each.model == model] == [False]


@pytest.mark.parametrize("instructions", [0, 8_600])
def test_what_the_line_lets_select_in_a_project_is_sent(
    application: Application, person: Person, scripted_model_row: Model, instructions: int
) -> None:
    model = counted_model(scripted_model_row, 12_288, tools=True)
    place = put_together(person, upload(person, "large.txt", b"many words " * 3_000))
    project = person.caller.get(f"conversations/{place}/")["project"]
    Project.objects.filter(pk=project).update(instructions="word " * instructions)
    own = person.caller.get(f"max-selected-document-tokens/?model={model.pk}&conversation={place}")
    assert own == person.caller.get(f"max-selected-document-tokens/?model={model.pk}&project={project}")
    line = own["selectable_up_to"]
    file = upload(person, "chosen.txt", b"word " * (line - 30))
    body = {"text": "word " * 480, "files": [file["id"]], "model": str(model.pk)}
    plan = person.caller.post(f"conversations/{place}/plan/", body, expect=200)
    assert plan["fits"], plan["error"]
    assert {name: plan["documents"][name] for name in own} == own
    assert files_of(plan) == {"large.txt": ("by_search", "over_share" if instructions else "no_room")}


def test_the_line_of_somebody_elses_conversation_or_project_is_not_told(person: Person, stranger: Person) -> None:
    project = stranger.caller.post("projects/", {"name": "Closed"}, expect=201)["id"]
    for place in (f"conversation={stranger.caller.conversation()}", f"project={project}", "project=x", "conversation="):
        assert person.caller.http.get(f"max-selected-document-tokens/?{place}").status_code == 404


def project_of(person: Person, *sizes: int) -> Project:
    project = Project.objects.create(owner=person.user, name="Large")
    for number, size in enumerate(sizes):
        file = File.objects.create(owner=person.user, name=f"file-{number}.txt", status="ready", size=1, tokens={})
        FileText.objects.create(file=file, text="many words " * (size // 2))
        ProjectFile.objects.create(project=project, file=file, added_by=person.user, ordinal=number, pinned=number == 1)
    return project


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize(
    "layout", ["files_first", *(pytest.param(name, marks=pytest.mark.slow) for name in ("near_end", "all_first"))]
)
@pytest.mark.parametrize("policy", ["recent", "priority"])
def test_what_fits_alone_fits_in_a_project_of_57_percent(
    person: Person, scripted_model_row: Model, policy: str, layout: str, tools: bool
) -> None:
    model, project = counted_model(scripted_model_row, 12_288, tools=tools), project_of(person, 3_000, 1_500, 1_700)
    base = base_context(user=person.user, model=model, scope=ChatScope(project=project))
    inside = replace(base, profile=BudgetProfile(name="p", policy=policy, layout=layout))
    alone = replace(inside, project=None)
    leaf = past(person.user, 40).leaf
    looked = [
        ContextMessage("call", "assistant", "", tool_calls=(ToolCall("c", "look", "{}"),)),
        ContextMessage("result", "tool", "found " * 3_000, tool_call_id="c"),
    ]
    most = 0
    for words in (1, 2_000, 4_000, 4_600, 6_000, 8_000, 9_000, *range(10_800, 11_300, 7)):
        for added in ([], looked):
            messages = [builder.draft_message("word " * words), *added]
            try:
                builder.plan(alone, leaf, messages)
            except ContextError:
                continue
            prompt = builder.plan(inside, leaf, messages).prompt
            assert sum(sent.tokens for sent in prompt.messages) == prompt.report.used <= prompt.report.limit
            result = [sent for sent in prompt.messages if sent.source == "result"]
            assert not (result and result[0].state == "shortened" and "project_files" in prompt.report.sections)
            most = words
    assert most > 11_000


def test_a_project_gives_way_also_in_the_middle_of_a_turn_whose_reasoning_is_bound_to_it(
    application: Application, person: Person
) -> None:
    provider = Provider.objects.create(name=uuid4().hex, kind="anthropic", base_url=application.model.url)
    model = Model.objects.create(
        provider=provider, name="claude-opus-5-5", context_window=16_000, tools=True, max_output=1_024
    )
    filler = " ".join(f"Clause {number} is about nothing in particular." for number in range(900))
    big = upload(person, "contract.txt", filler.encode())
    searchable(person, big)
    place = put_together(person, big)
    looks = [{"reasoning": f"Step {n}.", "text": "", **SEARCH} for n in range(4)]
    turn = ask(person, place, model, f"What is the fee? {uuid4().hex}", *looks, ANSWER)
    calls = Turn.objects.get(pk=turn["id"]).report["calls"]
    assert len(calls) == 5 and all(call["used"] <= call["limit"] for call in calls)
    assert calls[0]["sections"]["project_files"] and "project_files" not in calls[-1]["sections"]
    inline = ["project_files" in call["sections"] for call in calls]
    assert inline == sorted(inline, reverse=True)


@pytest.mark.slow
def test_thirty_turns_beside_a_project_of_57_percent_are_seldom_summarised(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    """The turns have about 240 tokens each. Turns of twice that length need twice as many summaries by the rules."""
    model = counted_model(scripted_model_row, 12_288)
    place = UUID(
        put_together(
            person, *(upload(person, f"part-{n}.txt", f"{n} ".encode() + b"many words " * 1_040) for n in range(3))
        )
    )
    for number in range(30):
        script = {"tokens": 60, "note": uuid4().hex}
        turn = person.caller.ask(f"q{number} {FILLER[:480]}", script, str(place), models=[str(model.pk)])
        assert person.caller.ended(turn["id"])["status"] == "done"
        settled(person, place)
        sections = [sent["section"] for sent in Turn.objects.get(pk=turn["id"]).report["calls"][-1]["messages"]]
        assert sections.count("history") >= min(4, 2 * number) and "project_files" in sections
    assert Summary.objects.filter(conversation=place).count() <= 4
