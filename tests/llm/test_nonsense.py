"""Test that a provider may send anything in its reports of usage and the like."""

import json
from typing import Any

import pytest

from llm.providers.anthropic import AnthropicReader
from llm.providers.ollama import OllamaReader
from llm.providers.openai import OpenAIReader
from llm.providers.responses import ResponsesReader
from llm.providers.streaming import StepReader, log_invalid_count
from llm.types.model_call import StepFinished, TextDelta, Usage

NONSENSE: tuple[Any, ...] = ("many", 7, [], True, -1, 1e99, 10**40, {"type": 3, "reason": [], "cached_tokens": {}})


def answers_with(strange: Any) -> list[tuple[StepReader, list[Any]]]:
    """Return a whole answer in each protocol, in which everything but the text is `strange`."""
    usage = {"prompt_tokens": strange, "completion_tokens": strange, "prompt_tokens_details": strange}
    chat: list[Any] = [{"choices": [{"delta": {"content": "Yes."}, "finish_reason": "stop"}]}]
    chat += [
        {"choices": [], "usage": {**usage, "completion_tokens_details": strange}},
        {"choices": [], "usage": strange},
    ]
    counted = {"input_tokens": strange, "output_tokens": strange}
    into = {**counted, "input_tokens_details": strange, "output_tokens_details": strange}
    delta = {"type": "response.output_text.delta", "delta": "Yes."}
    message = {"id": strange, "usage": counted, "diagnostics": strange}
    blocks = [
        {"type": "message_start", "message": message},
        {
            "type": "message_start",
            "message": {**message, "usage": strange, "diagnostics": {"cache_miss_reason": strange}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Yes."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens_details": strange}},
        {"type": "message_stop"},
    ]
    last = {"done": True, "done_reason": "stop", "prompt_eval_count": strange, "eval_count": strange}
    ended = {"type": "response.completed", "response": {"usage": into, "incomplete_details": strange}}
    unmeasured = {"type": "response.incomplete", "response": {"usage": strange, "incomplete_details": strange}}
    return [
        (OpenAIReader(""), chat),
        (ResponsesReader(""), [delta, ended]),
        (ResponsesReader(""), [delta, unmeasured]),
        (AnthropicReader(""), blocks),
        (OllamaReader(""), [{"message": {"content": "Yes."}}, last]),
    ]


@pytest.mark.parametrize("strange", NONSENSE)
def test_nonsense_beside_an_answer_changes_nothing_and_is_logged_once(
    strange: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log_invalid_count.cache_clear()
    for reader, payloads in [*answers_with(strange), *answers_with(strange)]:
        lines = "" if isinstance(reader, OllamaReader) else "data: "
        wire = "".join(f"{lines}{json.dumps(payload)}\n\n" for payload in payloads)
        events = [*reader.feed(wire.encode()), *reader.finish()]
        usage = [event.usage for event in events if isinstance(event, StepFinished)]
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Yes."
        assert usage[0] in (None, Usage(0, 0), Usage(7, 7))
    assert len(caplog.records) <= 1
