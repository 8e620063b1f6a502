"""Every published vector, through `plan` as a program would use it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat.context.asking import plan

VECTORS = Path(__file__).with_name("vectors")
LABELS = {
    "system": "S",
    "tasks": "K",
    "summary": "M",
    "persona": "CA",
    "project_files": "P",
    "file_listing": "L",
    "reminder": "R",
}


def vectors(kind: str) -> list[Any]:
    """The published examples as test parameters."""
    published = json.loads((VECTORS / f"{kind}.json").read_text(encoding="utf-8"))["vectors"]
    return [pytest.param(vector["request"], vector["expect"], id=vector["name"]) for vector in published]


def as_published(answer: dict[str, Any]) -> dict[str, Any]:
    """A `context` answer in the vectors' form: labels of sections, ids of messages and files."""
    if not answer["ok"]:
        return {"ok": False, "code": answer["error"]["code"]}
    sequence = [LABELS.get(message["section"], message["source"]) for message in answer["messages"]]
    report = answer["report"]
    return {"ok": True, "sequence": sequence, "used": report["used"], "dropped": report["dropped"]}


@pytest.mark.parametrize(
    ("request_", "expected"), vectors("context") + vectors("context_marks") + vectors("context_images")
)
def test_a_context_request_is_answered_as_published(request_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert as_published(plan("context", request_)) == expected


@pytest.mark.parametrize(("request_", "expected"), vectors("budget"))
def test_a_budget_request_is_answered_as_published(request_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert plan("budget", request_) == expected


@pytest.mark.parametrize(("request_", "expected"), vectors("summary"))
def test_a_summary_request_is_answered_as_published(request_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert plan("summary", request_) == expected


@pytest.mark.parametrize(
    ("request_", "expected"), vectors("context") + vectors("context_marks") + vectors("context_images")
)
def test_the_messages_of_a_published_answer_cost_what_the_report_says(
    request_: dict[str, Any], expected: dict[str, Any]
) -> None:
    answer = plan("context", request_)
    if answer["ok"]:
        report = answer["report"]
        assert sum(message["tokens"] for message in answer["messages"]) == report["used"] == expected["used"]
        assert sum(report["sections"].values()) == report["used"] <= report["limit"]
