"""The tokens that a turn costs besides the person's words, counted with o200k, and the descriptions of tools."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest

from chat.context.rendering import CallState, ToolGuidance, system_text
from chat.tools.conversation import SearchConversation
from chat.tools.files import ReadFile, SearchFiles
from chat.tools.results import ReadResult
from chat.tools.tasks import EVERYWHERE
from config.management.commands.seed import SYSTEM_PROMPT
from llm.tokens import tokenizer
from llm.tools.open_url import OpenUrlTool
from llm.tools.web_search import WebSearchTool
from llm.types.model_call import ToolDefinition
from personas.texts import BUILT_IN

FILES = [SearchFiles.definition, ReadFile.definition]
# `read_result` comes with a result that was shortened, the section on citations with a document.
OFFERED = [
    *FILES,
    *(SearchConversation.definition, WebSearchTool.definition, OpenUrlTool.definition),
    *(tool.definition for tool in EVERYWHERE),
]


@pytest.mark.parametrize(("tools", "most"), [([], 150), (FILES, 420), (OFFERED, 1_500)])
def test_a_turn_costs_few_tokens_besides_the_persons_words(tools: Sequence[ToolDefinition], most: int) -> None:
    names = [tool.name for tool in tools]
    state = CallState(
        "near_end", datetime(2026, 11, 25), tools=[ToolGuidance(name) for name in names], available=frozenset(names)
    )
    system = system_text(SYSTEM_PROMPT, state)
    assert all(BUILT_IN[f"guidance_{name}"] in system for name in names)
    described = [{"name": each.name, "description": each.description, "parameters": each.parameters} for each in tools]
    texts = [system, json.dumps(described, ensure_ascii=False) if described else ""]
    assert sum(tokenizer("o200k_base").count(text) for text in texts) <= most


def parameters(name: str, schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield each parameter with its place, those of lists and objects included."""
    for member, each in schema.get("properties", {}).items():
        yield f"{name}.{member}", each
        yield from parameters(f"{name}.{member}", each.get("items", each))


def test_each_parameter_that_is_written_freely_has_an_example() -> None:
    for tool in (*OFFERED, ReadResult.definition):
        assert tool.description.endswith("."), tool.name
        for place, schema in parameters(tool.name, tool.parameters):
            items = schema.get("items", {})
            if "enum" not in schema and schema["type"] != "boolean" and items.get("type") != "object":
                assert "uch as" in schema.get("description", ""), place
