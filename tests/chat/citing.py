"""A contract that can be searched, and an answer that cites it."""

import json
from typing import Any

from llm.models import Model
from tests.chat.documents import ask_and_wait
from tests.conftest import Person

CLAUSE = "Clause 7: the fee is limited to 500 euros a year."


def ask(person: Person, place: str, model: Model, text: str, *steps: dict[str, Any]) -> dict[str, Any]:
    script = json.dumps({"steps": list(steps)})
    return ask_and_wait(person, place, f"{text}\nscript: {script}", models=[str(model.pk)])


SEARCH = {"tool_calls": [{"name": "search_files", "arguments": {"query": "fee limit", "variants": ["maximum fee"]}}]}


ANSWER = {"text": "The fee is limited by clause 7 [1]."}
