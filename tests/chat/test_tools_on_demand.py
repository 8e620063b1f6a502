"""Tools that are listed by name, because their definitions take too much of the window, and that a model loads."""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from accounts.models import User
from chat.models import Conversation
from chat.tools.on_demand import FindTools, ToolRoom, best_matches, plan_on_demand
from llm.models import Model, ToolServer
from llm.tokens import CATCH_ALL, NamedTokenizer
from llm.tools.mcp import ServerTool
from llm.tools.servers import ToolServerConfig
from llm.types.model_call import ToolDefinition
from personas.models import BudgetProfile
from personas.services import save_profile
from tests.application import Application
from tests.chat.test_tool_results import ANSWER, Turns, calls, model_of, place_of, served
from tests.conftest import Person
from tests.llm.misbehaving_server import Misbehaving, tool

__all__ = ["model_of", "served"]  # fixtures

TOKENIZER = NamedTokenizer(CATCH_ALL)
ABOUT = "Reads the measurements of one sensor and returns them with their times. " * 3
PARAMETERS = {
    "type": "object",
    "properties": {name: {"type": "string", "description": ABOUT} for name in ("place", "since", "until")},
}


def sensors(count: int) -> Misbehaving:
    tools = [tool(f"sensor{number:03}", PARAMETERS, ABOUT) for number in range(count - 1)]
    return Misbehaving([*tools, tool("water_level", PARAMETERS, "Returns the level of a river. " + ABOUT)])


def names_of(body: Mapping[str, Any]) -> list[str]:
    return [each["function"]["name"] for each in body["tools"]]


def test_two_hundred_tools_work_on_a_window_of_16k_and_the_report_names_them(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(sensors(200))
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(16_000))
    level = f"{row.name}__water_level"
    turn = turns.ask(calls(("find_tools", {"query": "river"})), calls((level, {"place": "x"})), ANSWER)
    first, second, third = turns.bodies()
    assert names_of(first) == ["read_result", "find_tools"]
    assert names_of(second) == names_of(third) == ["read_result", "find_tools", level]
    assert second["messages"][0] == third["messages"][0]  # the system prompt has the same list
    system = next(each["content"] for each in first["messages"] if each["role"] == "system")
    assert f"- {row.name}__: sensor000, sensor001" in system and "water_level" in system
    loaded, result = turns.results(2)
    assert level in loaded and "Returns the level of a river." in loaded and result == "Done."

    report = turns.report(turn)
    everything = [*(f"{row.name}__sensor{number:03}" for number in range(199)), level]
    listed = report["tools_on_demand"]
    assert listed["listed"] == everything and listed["loaded"] == [level] and listed["unnamed"] == 0
    assert report["tools"] == ["read_result", "find_tools", level]
    assert listed["saved"] > 20_000 and report["tools_tokens"] < 1_000
    assert turns.report(turn, 1)["tools_on_demand"]["loaded"] == []


def test_a_loaded_tool_stays_loaded_and_a_later_one_is_appended(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(sensors(60))
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(16_000))
    later, earlier = f"{row.name}__sensor007", f"{row.name}__sensor003"
    turns.ask(calls(("find_tools", {"names": [later]})), ANSWER)
    planned = turns.plan()
    assert planned["tools_on_demand"]["loaded"] == [later]
    assert planned["tools"] == ["read_result", "find_tools", later]
    turn = turns.ask(calls(("find_tools", {"names": ["sensor003", "no_such"]})), ANSWER)
    before, after = turns.bodies()
    assert names_of(before)[-1] == later and names_of(after) == [*names_of(before), earlier]
    assert before["tools"] == after["tools"][:-1]
    assert "There is no tool “no_such”." in turns.results(1)[-1]
    assert turns.report(turn, 1)["cache"]["missed_section"] != "tools"


def test_a_call_of_a_listed_tool_loads_it_and_says_so(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(sensors(60))
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(16_000))
    name = f"{row.name}__sensor004"
    turns.ask(calls((name, {})), calls((name, {"place": "x"})), ANSWER)
    refusal, result = turns.results(2)
    assert "was not loaded" in refusal and '"since"' in refusal and result == "Done."


def test_more_tools_than_the_provider_takes_are_listed_and_can_all_be_called(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(Misbehaving([tool(f"tool{number:03}") for number in range(192)]))
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(200_000))
    name = f"{row.name}__tool190"
    turn = turns.ask(calls(("find_tools", {"names": [name]})), calls((name, {})), ANSWER)
    assert turns.results(2)[-1] == "Done."
    report = turns.report(turn)
    assert report["notes"] == [] and len(report["tools_on_demand"]["listed"]) == 192


def test_the_budget_profile_sets_the_share(
    application: Application, person: Person, served: Callable[..., ToolServer], model_of: Callable[[int], Model]
) -> None:
    row = served(sensors(20))
    turns = Turns(application, person, place_of(person, f"{row.name}__*"), model_of(64_000))
    turns.ask(ANSWER)
    admin = User.objects.create_superuser(f"a{uuid4().hex[:8]}")
    profile = BudgetProfile.objects.get(default=True)
    try:
        save_profile(user=admin, profile=with_share(profile, "0.001"))
        assert turns.plan()["tools"] == ["read_result", "find_tools"]
        save_profile(user=admin, profile=with_share(profile, "1"))
        planned = turns.plan()
        assert len(planned["tools"]) == 21 and planned["tools_on_demand"] is None
    finally:
        save_profile(user=admin, profile=with_share(profile, "0.1"))


def with_share(profile: BudgetProfile, share: str) -> BudgetProfile:
    profile.tool_share = Decimal(share)
    return profile


# The list and what is loaded, without a turn.


def server_tools(descriptions: Mapping[str, str]) -> dict[str, ServerTool]:
    server = ToolServerConfig("crm")
    return {
        f"crm__{name}": ServerTool(server, name, ToolDefinition(f"crm__{name}", text, PARAMETERS))
        for name, text in descriptions.items()
    }


def definitions(descriptions: Mapping[str, str]) -> dict[str, ToolDefinition]:
    return {name: each.definition for name, each in server_tools(descriptions).items()}


@pytest.fixture
def conversation(db: None) -> Conversation:
    return Conversation.objects.create(owner=User.objects.create_user("alice"))


def test_the_list_gets_shorter_until_it_fits() -> None:
    tools = server_tools({f"tool_{number}": "Does one thing. And another one." for number in range(50)})
    lists = []
    for share in (2_000, 400, 100):
        room = ToolRoom.of(16_000, share, None)
        listing = plan_on_demand(tools, room=room, tokenizer=TOKENIZER, conversation=Conversation())
        assert listing is not None
        lists.append(listing)
    whole, names, part = (each.guidance.listing for each in lists)
    assert whole.startswith("- crm__tool_0: Does one thing.\n- crm__tool_1: ")
    assert names.startswith("- crm__: tool_0, tool_1, ") and names.endswith("tool_49")
    assert [each.unnamed for each in lists][:2] == [0, 0] and 0 < lists[2].unnamed < 50
    assert part.endswith(f"- {lists[2].unnamed} more, which only a search by words finds")
    assert all(TOKENIZER.count(text) <= share + 15 for text, share in ((whole, 2_000), (names, 400), (part, 100)))


def test_a_list_that_saves_nothing_is_not_made() -> None:
    tools = {"crm__a": ServerTool(ToolServerConfig("crm"), "a", ToolDefinition("crm__a", "Does it.", {}))}
    room = ToolRoom.of(1_000, 0, None)
    assert plan_on_demand(tools, room=room, tokenizer=TOKENIZER, conversation=Conversation()) is None


def test_words_are_looked_for_in_names_and_descriptions() -> None:
    tools = definitions(
        {
            "createInvoice": "Makes a bill for a customer.",
            "list_customers": "Lists customers.",
            "delete_everything": "Removes all rows. Vorgänge löschen.",
        }
    )
    assert best_matches(tools, "invoice", 5) == ["crm__createInvoice"]
    assert best_matches(tools, "customers of ours", 5)[0] == "crm__list_customers"
    assert best_matches(tools, "vorgange", 5) == ["crm__delete_everything"]
    assert best_matches(tools, "no-such-word", 5) == [] and best_matches(tools, "  ", 5) == []


def load(finder: FindTools, **arguments: Any) -> str:
    return finder._load_and_describe(arguments.get("names", []), arguments.get("query", "")).text


def test_loaded_tools_have_a_bound_and_the_oldest_make_room(conversation: Conversation) -> None:
    tools = definitions(dict.fromkeys(("a", "b", "c"), "Does it."))
    size = TOKENIZER.count(json.dumps([{"name": "crm__a", "description": "Does it.", "parameters": PARAMETERS}]))
    finder = FindTools(tools, ToolRoom(share=10, loaded=2 * size + 20), TOKENIZER, conversation)
    load(finder, names=["a", "b"])
    assert conversation.loaded_tools == ["crm__a", "crm__b"]
    assert "not loaded any more: crm__a" in load(finder, names=["c"])
    conversation.refresh_from_db()
    assert conversation.loaded_tools == ["crm__b", "crm__c"]
    small = FindTools(tools, ToolRoom(share=10, loaded=size // 2), TOKENIZER, conversation)
    assert load(small, names=["a"]).splitlines() == [
        "There is no room for the definition of crm__a.",
        "There is no more room for these, so they are not loaded any more: crm__b, crm__c.",
    ]


def test_tools_of_a_server_that_is_away_stay_loaded(conversation: Conversation) -> None:
    Conversation.objects.update(loaded_tools=["away__x"])
    finder = FindTools(definitions({"a": "Does it."}), ToolRoom(10, 10_000), TOKENIZER, conversation)
    load(finder, names=["a"])
    assert Conversation.objects.get(pk=UUID(str(conversation.pk))).loaded_tools == ["away__x", "crm__a"]
