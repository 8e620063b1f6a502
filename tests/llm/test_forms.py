"""Forms with which tools ask people: from the protocol's schema, and the answers."""

from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams

from core.errors import ProductError
from core.sentences import Sentence
from llm.tools.mcp_forms import to_form, to_result
from llm.types import tools
from llm.types.forms import MAX_FIELDS, FormAnswer, ToolQuestion, validate_content
from llm.types.model_call import ToolDefinition
from llm.types.tools import ToolOutput, asking_person, person_asker, run_tool

PROPERTIES: dict[str, Any] = {
    "name": {"type": "string", "title": "Your name", "minLength": 2, "maxLength": 5},
    "mail": {"type": "string", "format": "email", "description": "For the receipt."},
    "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
    "price": {"type": "number"},
    "gift": {"type": "boolean", "default": True},
    "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
    "kind": {"type": "string", "oneOf": [{"const": "dark", "title": "Dark"}, {"const": "milk"}]},
    "extras": {"type": "array", "items": {"type": "string", "enum": ["nuts", "salt"]}},
}


def form(properties: Any = None, required: Any = ("name",)) -> ToolQuestion | None:
    schema = {"type": "object", "properties": PROPERTIES if properties is None else properties, "required": required}
    return to_form(ElicitRequestFormParams(message="What do you want?", requested_schema=schema), 1)


def whole_form() -> ToolQuestion:
    read = form()
    assert read is not None
    return read


def test_a_form_has_the_fields_of_the_schema() -> None:
    read = whole_form()
    assert (read["number"], read["message"], read["url"]) == (1, "What do you want?", "")
    fields = {each["name"]: each for each in read["fields"]}
    assert {name: each["kind"] for name, each in fields.items()} == {
        "name": "text", "mail": "text", "count": "integer", "price": "number", "gift": "boolean", "size": "choice",
        "kind": "choice", "extras": "choices",
    }  # fmt: skip
    assert [each["name"] for each in read["fields"] if each["required"]] == ["name"]
    assert (fields["name"]["title"], fields["name"]["least"], fields["name"]["most"]) == ("Your name", 2, 5)
    assert (fields["mail"]["title"], fields["mail"]["input"]) == ("mail", "email")
    assert (fields["count"]["default"], fields["gift"]["default"]) == ("2", True)
    assert [each["label"] for each in fields["size"]["choices"]] == ["Small", "Large"]
    assert [each["label"] for each in fields["kind"]["choices"]] == ["Dark", "milk"]


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "object"}},
        {"a": 5},
        {f"a{n}": {"type": "string"} for n in range(MAX_FIELDS + 1)},
        "none",
        {"a" * 501: {"type": "string"}},
    ],
    ids=range(5),
)
def test_a_form_that_cannot_be_shown_is_none(properties: Any) -> None:
    assert form(properties) is None


def test_an_infinite_bound_is_none() -> None:
    read = form({"a": {"type": "number", "minimum": float("-inf"), "maximum": 5}})
    assert read is not None and "least" not in read["fields"][0] and read["fields"][0]["most"] == 5


def test_a_page_to_open_is_a_form_without_fields() -> None:
    page = to_form(ElicitRequestURLParams(message="Sign in.", url="https://example.org/x"), 2)
    assert page == {"number": 2, "message": "Sign in.", "url": "https://example.org/x", "fields": []}
    assert to_result(page, FormAnswer({})).model_dump(exclude_none=True)["action"] == "accept"
    assert to_form(ElicitRequestURLParams(message="Sign in.", url="javascript:alert(1)"), 1) is None


def test_values_of_a_browser_and_of_a_program_are_the_same() -> None:
    typed = {"name": "Ada", "count": "3", "price": "2.5", "gift": "on", "size": "l", "extras": ["nuts"], "mail": ""}
    values = {"name": "Ada", "count": 3, "price": 2.5, "gift": True, "size": "l", "extras": ["nuts"]}
    assert validate_content(whole_form(), typed) == values == validate_content(whole_form(), values)
    result = to_result(whole_form(), FormAnswer(values))
    assert (result.action, result.content) == ("accept", values)
    assert to_result(whole_form(), FormAnswer(None)).action == "decline"


def test_what_is_not_filled_in_is_left_out() -> None:
    assert validate_content(whole_form(), {"name": "Ada", "unknown": "x"}) == {"name": "Ada", "gift": False}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"name": "A"},
        {"name": "Adalovelace"},
        {"name": 5},
        {"name": "Ada", "count": "many"},
        {"name": "Ada", "count": 2.5},
        {"name": "Ada", "count": 10},
        {"name": "Ada", "price": True},
        {"name": "Ada", "count": float("inf")},
        {"name": "Ada", "price": float("nan")},
        {"name": "Ada", "size": "m"},
        {"name": "Ada", "extras": ["nuts", "gold"]},
    ],
    ids=range(12),
)
def test_a_value_that_a_field_does_not_take_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ProductError) as error:
        validate_content(whole_form(), values)
    assert error.value.code == "bad_form" and "“" in error.value.sentence.english


async def test_the_time_limit_of_a_tool_stands_still_while_its_person_is_asked() -> None:
    limits: list[float | None] = []

    def note_limit() -> None:
        limit = tools._limit.get()
        limits.append(limit.when() if limit is not None else None)

    async def answer(question: ToolQuestion) -> FormAnswer:
        note_limit()
        return FormAnswer({"name": "Ada"})

    class Asking:
        definition = ToolDefinition("ask", "Asks.", {})
        timeout = 60.0

        def label(self, arguments: Mapping[str, Any]) -> Sentence:
            return Sentence("Asking")

        async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
            ask = person_asker()
            assert ask is not None
            note_limit()
            reply = await ask(whole_form())
            note_limit()
            return ToolOutput(str(reply.content))

    with asking_person(answer):
        assert (await run_tool(Asking(), {})).text == "{'name': 'Ada'}"
    before, meanwhile, after = limits
    assert before is not None and meanwhile is None and after is not None and after >= before
