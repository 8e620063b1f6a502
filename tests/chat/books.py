"""Files to read part by part, the scripted notes on each part, and a model whose window is too small for them."""

import json
from typing import Any
from uuid import uuid4

from llm.models import Model, Provider
from tests.product import Server

FILLER = "The weather on the plantation was mild and nothing else of note happened on that day. " * 45


def small_model(server: Server) -> Model:
    """Create a model with a small window. The caller deletes its provider."""
    provider = Provider.objects.create(name=uuid4().hex, kind="openai", base_url=server.model.openai_url)
    fields = {"context_window": 4_000, "input_price": 1, "output_price": 2}
    return Model.objects.create(provider=provider, name=f"scripted-{uuid4().hex[:8]}", **fields)


def book(*answers: dict[str, Any], fact: str = "") -> str:
    """As many chapters as the model has answers to parts that end with them; each begins with the fact."""
    return "\n".join(
        f"## Chapter {number} of {uuid4().hex}\n\n{fact}\n\n{FILLER}\n\nscript: {json.dumps(answer)}\n"
        for number, answer in enumerate(answers, 1)
    )


def heading(text: str, chapter: int) -> str:
    """Return words that only the requests about this chapter contain."""
    return text.split(f"## Chapter {chapter} of ")[1][:32]


def notes(number: int, **more: Any) -> dict[str, Any]:
    return {"text": f"- {number} kg were bought [{number}].", "note": uuid4().hex, **more}
