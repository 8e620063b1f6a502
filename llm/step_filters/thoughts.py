"""Reasoning that a model writes into its text becomes reasoning: `<think>…</think>` and its kin.

Servers without a parser for reasoning send it as a part of the answer. There are two forms:

1. The text begins with an opening tag. What stands between the tags is reasoning; what follows is the answer.
2. The chat template has written the opening tag, so only the closing one comes. The text before it has been passed on
   as an answer by then. `TextBecameReasoning` takes it back. A model that is known to do so begins with reasoning.

Only the beginning of a step is looked at. A tag in a code block, or one that is mentioned in a sentence, stays text.
"""

import re
from collections.abc import Iterator
from typing import Literal

from llm.types.model_call import ReasoningDelta, TextBecameReasoning, TextDelta

# Opening tags and their ends: DeepSeek's and Qwen's; Claude's imitators; Gemini's and Gemma's; a few fine-tunes;
# Mistral's Magistral; ByteDance's Seed-OSS.
TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "[think]": "[/think]",
    "<seed:think>": "</seed:think>",
}
LONGEST_TAG = max(map(len, TAGS.values()))
TextEvent = TextDelta | ReasoningDelta | TextBecameReasoning
_ENDS = tuple(TAGS.values())
_OPENING = re.compile("|".join(map(re.escape, TAGS)), re.IGNORECASE)
_FENCE = re.compile(r"^[ ]{0,3}(?:```|~~~)", re.MULTILINE)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
# A tag that a sentence speaks of has a blank or a quotation mark before it, and the sentence goes on behind it.
_BEFORE_MENTION = tuple(" \t\"'“‘«(")
_GOES_ON = re.compile(r"[ \t]+[a-z0-9(]|[ \t]*[,.;:)\"'”’»]")
_SENTENCE_END = tuple(".!?…:;。！？*")
BEHIND = 3  # characters behind a closing tag that tell an end from a mention
MAX_MENTIONS = 8  # of closing tags; what follows is text


def _pattern(ends: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, ends)), re.IGNORECASE)


_ANY_END = _pattern(_ENDS)
_END_OF = {end: _pattern((end,)) for end in _ENDS}


def _held(text: str, tags: tuple[str, ...]) -> int:
    """The number of characters at the end of a text with which one of these tags may begin."""
    for length in range(min(len(text), LONGEST_TAG), 0, -1):
        if text[-length] in "<[" and any(tag.startswith(text[-length:].lower()) for tag in tags):
            return length
    return 0


class ThoughtFilter:
    """Feeds on the text of one step; gives text and reasoning.

    `begins_inside`: the model is known to begin with reasoning whose opening tag its template has written.
    `found`: the text held reasoning.
    """

    def __init__(self, *, begins_inside: bool = False) -> None:
        self.found = False
        self._state: Literal["start", "inside", "watching", "plain"] = "start"
        self._begins_inside = begins_inside
        self._separate = False  # the server sends reasoning apart
        self._assumed = False  # it is written as reasoning, and nothing has proven that yet
        self._ends: tuple[str, ...] = ()  # tags with which the reasoning may end
        self._rest = ""  # not passed on yet
        self._passed: list[str] = []  # what a lone closing tag would prove to be reasoning
        self._mentions = 0

    def feed(self, text: str) -> Iterator[TextEvent]:
        if self._state == "plain":
            yield TextDelta(text)
            return
        if self._state == "watching" and not self._rest and "<" not in text and "[" not in text:
            self._passed.append(text)  # nearly every piece of nearly every answer
            yield TextDelta(text)
            return
        self._rest += text
        yield from self._read(final=False)

    def separate(self) -> None:
        """The server sends reasoning apart from the text, so a lone closing tag in the text is a mention."""
        self._begins_inside, self._separate = False, True
        if self._state == "watching":
            self._state = "plain"

    def end_text(self) -> Iterator[TextEvent]:
        """A tool call follows: what has waited is passed on, and text behind the call is text."""
        yield from self._read(final=True)
        self._state, self._assumed = "plain", False

    def finish(self, *, complete: bool) -> Iterator[TextEvent]:
        """`complete`: the model has come to its end. What was only assumed to be reasoning is the answer then."""
        yield from self._read(final=True)
        if self._assumed and complete and (answer := "".join(self._passed).strip()):
            yield TextDelta(answer)

    def _read(self, *, final: bool) -> Iterator[TextEvent]:
        """Goes on as long as a state has decided something about the rest."""
        while self._rest:
            state, length = self._state, len(self._rest)
            match state:
                case "start":
                    self._begin(final=final)
                case "inside":
                    yield from self._read_reasoning(final=final)
                case "watching":
                    yield from self._read_text(final=final)
                case "plain":
                    yield TextDelta(self._rest)
                    self._rest = ""
            if (self._state, len(self._rest)) == (state, length):
                return

    def _begin(self, *, final: bool) -> None:
        """Looks for a tag at the beginning. White space and the beginning of a tag wait for more."""
        text = self._rest.lstrip()
        if opening := _OPENING.match(text):
            self._state, self._ends = "inside", (TAGS[opening[0].lower()],)
            self.found, self._assumed, self._rest = True, False, text[opening.end() :]
        elif closing := _ANY_END.match(text):
            # Without text before it, it ends nothing: an empty thought, or one that the server has sent apart.
            self.found, self._begins_inside, self._rest = True, False, text[closing.end() :]
        elif final or (text and not any(tag.startswith(text.lower()) for tag in (*TAGS, *_ENDS))):
            if self._begins_inside:
                self._state, self._assumed, self._ends = "inside", True, _ENDS
            else:
                self._state = "plain" if self.found or self._separate else "watching"
            if self.found:
                self._rest = text  # the lines between the reasoning and the answer belong to neither

    def _read_reasoning(self, *, final: bool) -> Iterator[TextEvent]:
        at, behind, undecided = self._end_of_reasoning(final=final)
        if at is None:
            waiting = 0 if final else max(undecided, self._waiting())
            shown = self._rest[: len(self._rest) - waiting].rstrip()  # white space before the tag is not shown
            yield from self._think(shown)
            self._rest = "" if final else self._rest[len(shown) :]
            return
        yield from self._think(self._rest[:at].rstrip())
        self._rest = self._rest[behind:]
        self._state, self._begins_inside, self._assumed, self.found = "start", False, False, True

    def _waiting(self) -> int:
        """The number of characters at the end that may be the beginning of a closing tag, or of a quoted one."""
        length = _held(self._rest, self._ends)
        return length + self._rest[: len(self._rest) - length].endswith("`")

    def _end_of_reasoning(self, *, final: bool) -> tuple[int | None, int, int]:
        """Where the closing tag begins and ends; else how many characters wait until a quoted tag is told from it."""
        pattern = _END_OF[self._ends[0]] if len(self._ends) == 1 else _ANY_END
        for closing in pattern.finditer(self._rest):
            at, behind = closing.span()
            if self._rest[at - 1 : at] != "`":
                return at, behind, 0
            if behind == len(self._rest) and not final:
                return None, 0, behind - at + 1
            if self._rest[behind : behind + 1] != "`":
                return at, behind, 0
        return None, 0, 0

    def _think(self, text: str) -> Iterator[TextEvent]:
        if not self._passed:
            text = text.lstrip()
        if text:
            self._passed.append(text)
            yield ReasoningDelta(text)

    def _read_text(self, *, final: bool) -> Iterator[TextEvent]:
        closing = _ANY_END.search(self._rest)
        if closing is None:
            yield from self._pass(len(self._rest) - (0 if final else _held(self._rest, _ENDS)))
            return
        yield from self._pass(closing.start())
        length, before = closing.end() - closing.start(), "".join(self._passed)
        if not final and before.endswith(_BEFORE_MENTION) and len(self._rest) < length + BEHIND:
            return
        if _is_end(before, self._rest[length:]):
            yield TextBecameReasoning()
            self._rest = self._rest[length:]
            self._state, self.found = "start", True
            return
        self._mentions += 1
        yield from self._pass(length)
        if self._mentions == MAX_MENTIONS:
            self._state = "plain"

    def _pass(self, length: int) -> Iterator[TextEvent]:
        """Passes on so many characters of the rest as text."""
        text, self._rest = self._rest[:length], self._rest[length:]
        if text:
            self._passed.append(text)
            yield TextDelta(text)


def _is_end(before: str, behind: str) -> bool:
    """Whether a lone closing tag ends reasoning. In code, or in a sentence about tags, it does not."""
    line = before[before.rfind("\n") + 1 :]
    if not before.strip() or len(_FENCE.findall(before)) % 2 or line.count("`") % 2:
        return False
    if _OPENING.search(_CODE.sub("", before)):
        return False  # the text speaks of both tags
    spoken = line.rstrip()
    if not spoken or not line.endswith(_BEFORE_MENTION):
        return True
    return (line != spoken and spoken.endswith(_SENTENCE_END)) or not _GOES_ON.match(behind)


def without_reasoning(text: str) -> str:
    """The answer in a text that may begin with tagged reasoning; empty where that has no end.

    For rows that were stored before readers knew of tags.
    """
    if not _OPENING.match(text.lstrip()):
        return text
    reader = ThoughtFilter()
    events = [*reader.feed(text), *reader.finish(complete=True)]
    return "".join(event.text for event in events if isinstance(event, TextDelta))
