"""Reasoning that stands in the text of an answer, wherever the pieces of the stream are cut."""

import pytest

from llm.step_filters.thoughts import ThoughtFilter, without_reasoning
from llm.types.model_call import ReasoningDelta, TextBecameReasoning, TextDelta


def read(text: str, size: int, *, begins_inside: bool = False, complete: bool = True) -> tuple[str, str]:
    """The reasoning and the answer in a text that comes in pieces of this many characters."""
    thoughts, answer, reasoning = ThoughtFilter(begins_inside=begins_inside), "", ""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    events = [event for piece in pieces for event in thoughts.feed(piece)]
    for event in [*events, *thoughts.finish(complete=complete)]:
        if isinstance(event, TextDelta):
            answer += event.text
        elif isinstance(event, ReasoningDelta):
            reasoning += event.text
        else:
            reasoning, answer = reasoning + answer, ""
    return reasoning.strip(), answer


@pytest.mark.parametrize("size", range(1, 30))
@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>\nOkay.\n</think>\n\nThe answer.", "Okay.", "The answer."),
        ("\n<thinking>Okay.</thinking>The answer.", "Okay.", "The answer."),
        ("<Thought>Okay.</thought> The answer.", "Okay.", "The answer."),
        ("<reasoning>\nOkay.\n</reasoning>\nThe answer.", "Okay.", "The answer."),
        ("[THINK]Okay.[/THINK]The answer.", "Okay.", "The answer."),
        ("<think>\n\n</think>\n\nThe answer.", "", "The answer."),
        ("<think>One.</think>\n<think>Two.</think>\nThe answer.", "One.Two.", "The answer."),
        ("<think>`</think>` is a tag.\n</think>The answer.", "`</think>` is a tag.", "The answer."),
        ("<think>Okay.</think>Write `<think>` and </think>.", "Okay.", "Write `<think>` and </think>."),
        ("<think>Never said", "Never said", ""),
        ('<think signature="a b" n=1>Okay.</think >The answer.', "Okay.", "The answer."),
        ("\ufeff< think\n>Okay.</ think>The answer.", "Okay.", "The answer."),
        ("<think/>The answer.", "", "The answer."),
        ("<thinking>Okay.</think>The answer.", "Okay.", "The answer."),
        ("<think>Not the tag </thinking> here.</think>The answer.", "Not the tag </thinking> here.", "The answer."),
        ("<antThinking>Okay.</antThinking>The answer.", "Okay.", "The answer."),
        ("<|begin_of_thought|>Okay.<|end_of_thought|>The answer.", "Okay.", "The answer."),
        ("◁think▷Okay.◁/think▷The answer.", "Okay.", "The answer."),
        ("<|channel>thought\nOkay.<channel|>The answer.", "Okay.", "The answer."),
        (
            "<|channel|>analysis<|message|>Okay.<|end|><|start|>assistant<|channel|>final<|message|>The answer.",
            "Okay.",
            "The answer.",
        ),
        ('<think>x = "</think>"\nOkay.</think>The answer.', 'x = "</think>"\nOkay.', "The answer."),
        # A template has opened the tag.
        ("Okay.\n</think>\n\nThe answer.", "Okay.", "The answer."),
        ("Okay</think>The answer.", "Okay", "The answer."),
        ("I think so. </think> the answer", "I think so.", "the answer"),
        ("```\nx = 1\n```\nSo.\n</think>\nThe answer.", "```\nx = 1\n```\nSo.", "The answer."),
        ("They ask about `<think>`.\n</think>\nThe answer.", "They ask about `<think>`.", "The answer."),
        ("</think>\n\nThe answer.", "", "The answer."),
        # Text about tags.
        ("The tag `</think>` ends it.", "", "The tag `</think>` ends it."),
        ("The tag </think> ends it.", "", "The tag </think> ends it."),
        ('Use split("\\n</think>", 1).', "", 'Use split("\\n</think>", 1).'),
        ('Use sub(r".*</think>", "", s).', "", 'Use sub(r".*</think>", "", s).'),
        ("<thinkpad>a</thinkpad>", "", "<thinkpad>a</thinkpad>"),
        ("It is “</think>”.", "", "It is “</think>”."),
        ("```xml\n<think>a</think>\n```\n", "", "```xml\n<think>a</think>\n```\n"),
        ("```xml\na</think>\n```\n", "", "```xml\na</think>\n```\n"),
        ("First <think>a</think>.", "", "First <think>a</think>."),
        ("Just an answer with <b>tags</b> [1].", "", "Just an answer with <b>tags</b> [1]."),
        ("  indented", "", "  indented"),
        ("<th", "", "<th"),
    ],
)
def test_reasoning_is_told_from_the_answer(text: str, reasoning: str, answer: str, size: int) -> None:
    assert read(text, size) == (reasoning, answer)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_model_known_for_it_begins_with_reasoning(size: int) -> None:
    assert read("Okay.\n</think>\n\nThe answer.", size, begins_inside=True) == ("Okay.", "The answer.")
    assert read("<think>Okay.</think>The answer.", size, begins_inside=True) == ("Okay.", "The answer.")
    assert read("Never said", size, begins_inside=True, complete=False) == ("Never said", "")


def test_a_model_known_for_it_that_has_not_reasoned_has_answered() -> None:
    assert read("The answer.", 4, begins_inside=True)[1] == "The answer."


@pytest.mark.parametrize("size", [1, 4, 100])
def test_code_in_the_answer_of_such_a_model_ends_no_reasoning(size: int) -> None:
    text = "Here:\n```\n<think>x</think>\n```\nDone."
    assert read(text, size, begins_inside=True)[1] == text


def test_a_first_piece_that_begins_no_tag_is_passed_on_at_once() -> None:
    thoughts = ThoughtFilter()
    assert list(thoughts.feed("The")) == [TextDelta("The")]
    assert list(thoughts.feed(" answer <")) == [TextDelta(" answer ")]
    assert list(thoughts.feed("b>")) == [TextDelta("<b>")]


def test_reasoning_is_passed_on_while_it_is_written() -> None:
    thoughts = ThoughtFilter()
    assert list(thoughts.feed("<thi")) == []
    assert list(thoughts.feed("nk>Let me")) == [ReasoningDelta("Let me")]
    assert list(thoughts.feed(" see.\n</th")) == [ReasoningDelta(" see.")]


def test_a_server_that_separates_reasoning_only_mentions_tags() -> None:
    thoughts = ThoughtFilter()
    thoughts.note_separate_reasoning()
    events = [*thoughts.feed("Close it:\n</think>\nDone."), *thoughts.finish(complete=True)]
    assert events == [TextDelta("Close it:\n</think>\nDone.")]


def test_text_full_of_closing_tags_costs_no_more_than_others() -> None:
    text = "The tag </think> is one. " * 5_000
    thoughts = ThoughtFilter()
    events = [*thoughts.feed(text), *thoughts.finish(complete=True)]
    assert TextBecameReasoning() not in events
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Okay.</think>\n\nThe answer.", "The answer."),
        ("<think>Okay.", ""),
        ("Okay.\n</think>\nThe answer.", "Okay.\n</think>\nThe answer."),  # nobody would see that text is gone
        ("The answer.", "The answer."),
        ("", ""),
    ],
)
def test_texts_that_were_stored_before_lose_their_tagged_reasoning(text: str, answer: str) -> None:
    assert without_reasoning(text) == answer
