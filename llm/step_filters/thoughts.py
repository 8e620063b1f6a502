"""Separate the reasoning that a model writes into its text: `<think>…</think>` and similar tags.

Servers without a parser for reasoning send it as part of the answer, in two forms:

1. The text begins with an opening tag. The text between the tags is reasoning, the rest is the answer.
2. The chat template wrote the opening tag, so only the closing one arrives. By then the text before it was passed on as
   an answer, and `TextBecameReasoning` retracts it. For models that are known to do so, the text starts as reasoning.

Only the beginning of a step can be reasoning. A tag in a code block, or in a sentence about tags, stays text.

`ThoughtFilter` has four states: `start` (looks for an opening tag), `inside` (waits for the closing tag), `watching`
(passes text on, a lone closing tag may come), `plain` (passes everything on).
"""

import re
from collections.abc import Iterator
from typing import Literal

from llm.types.model_call import ReasoningDelta, TextBecameReasoning, TextDelta

# Tag names of DeepSeek and Qwen, Claude 3 and its imitators, Gemini, a few fine-tunes, and ByteDance's Seed-OSS. Models
# write them in any case, with blanks and attributes, and may close them with another name.
_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning", "antthinking", "seed:think")
# Fixed marks with their ends, of Mistral's Magistral, Kimi-VL, Sky-T1 and OpenThinker, Gemma 4, and gpt-oss. The two
# channels of gpt-oss follow each other directly or as separate messages.
_FINAL = "<|channel|>final<|message|>"
_MARKS: dict[str, tuple[str, ...]] = {
    "[think]": ("[/think]",),
    "◁think▷": ("◁/think▷",),
    "<|begin_of_thought|>": ("<|end_of_thought|>",),
    "<|channel>thought": ("<channel|>",),
    "<|channel|>analysis<|message|>": (f"<|end|><|start|>assistant{_FINAL}", f"<|start|>assistant{_FINAL}", _FINAL),
}
MAX_TAG_LENGTH = 200  # characters, including attributes
TextEvent = TextDelta | ReasoningDelta | TextBecameReasoning
_NAME = "|".join(sorted(_NAMES, key=len, reverse=True))
_ATTRIBUTE = r"""\s{1,4}[\w:-]{1,40}(?:=(?:"[^"<>]{0,100}"|'[^'<>]{0,100}'|[^\s"'<>]{1,100}))?"""
_NAMED_OPENING = rf"<\s{{0,4}}(?:{_NAME})(?:{_ATTRIBUTE}){{0,4}}\s{{0,4}}(?P<empty>/?)>"
_NAMED_END = rf"<\s{{0,4}}/\s{{0,4}}(?:{_NAME})\s{{0,4}}>"
_OPENING = re.compile("|".join((_NAMED_OPENING, *map(re.escape, _MARKS))), re.IGNORECASE)
# A tag that is cut off at the end of a piece.
_PARTIAL_TAG = re.compile(r"<\s{0,4}(?P<slash>/?)\s{0,4}(?P<name>[a-z:]{0,12})(?P<rest>[^<>]*)", re.IGNORECASE)
_TAG_NAME = re.compile(rf"<\s{{0,4}}/?\s{{0,4}}({_NAME})\b", re.IGNORECASE)
_INVISIBLE = " \t\r\n\f\v\ufeff\u200b\u2060"  # before a tag: white space, a byte order mark, zero width
_SIGNS = ("<", "[", "◁")  # first characters of tags
_QUOTES = tuple("`\"'")  # around a tag that is mentioned
_FENCE = re.compile(r"^[ ]{0,3}(?:```|~~~)", re.MULTILINE)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
# A mentioned tag follows a blank or quotation mark, and the sentence goes on after it.
_BEFORE_MENTION = tuple(" \t\"'“‘«(")
_SENTENCE_CONTINUES = re.compile(r"[ \t]+[a-z0-9(]|[ \t]*[,.;:)\"'”’»]")
_SENTENCE_END = tuple(".!?…:;。！？*")
LOOKAHEAD = 3  # characters after a closing tag that distinguish an end from a mention
MAX_MENTIONS = 8  # mentioned closing tags; after these, everything is text


def _pattern(*ends: str) -> re.Pattern[str]:
    return re.compile("|".join(ends), re.IGNORECASE)


_MARKED_ENDS = tuple(end for ends in _MARKS.values() for end in ends)
_ANY_END = _pattern(_NAMED_END, *map(re.escape, _MARKED_ENDS))
_END_OF_NAMED = _pattern(_NAMED_END)
_END_OF_MARK = {mark: _pattern(*map(re.escape, ends)) for mark, ends in _MARKS.items()}


def _begins_tag(text: str, *, opening: bool) -> bool:
    """Return whether a text may be the beginning of a closing tag, or with `opening` also of an opening one."""
    lower = text.lower()
    marks = (*_MARKS, *_MARKED_ENDS) if opening else _MARKED_ENDS
    if any(mark.startswith(lower) for mark in marks):
        return True
    partial = _PARTIAL_TAG.fullmatch(text)
    if partial is None or len(text) > MAX_TAG_LENGTH or not (opening or partial["slash"] or not partial["name"]):
        return False
    name = partial["name"].lower()
    if not partial["rest"]:
        return any(each.startswith(name) for each in _NAMES)
    if partial["slash"]:
        return name in _NAMES and partial["rest"].isspace()
    attributes = partial["rest"].lstrip()
    whole = name in _NAMES and (not attributes or attributes != partial["rest"] or attributes == "/")
    return whole and (opening or not attributes)


def _name_of(tag: str) -> str:
    """Return the name in a tag in lower case, "" for a fixed mark."""
    match = _TAG_NAME.match(tag)
    return match[1].lower() if match else ""


def _waiting_for_end(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a closing tag."""
    start = max(0, len(text) - MAX_TAG_LENGTH)
    for at in range(start, len(text)):
        if text[at] in _SIGNS and _begins_tag(text[at:], opening=False):
            return len(text) - at
    return 0


class ThoughtFilter:
    """Filter that splits the text of one step into text and reasoning.

    `begins_inside`: the model is known to begin with reasoning, and its template wrote the opening tag.
    `has_reasoning`: the text had reasoning.
    """

    def __init__(self, *, begins_inside: bool = False) -> None:
        self.has_reasoning = False
        self._state: Literal["start", "inside", "watching", "plain"] = "start"
        self._begins_inside = begins_inside
        self._separate = False  # the server sends reasoning outside of the text
        self._assumed = False  # the text is passed on as reasoning without proof so far
        self._end = _ANY_END  # tags that may end the reasoning
        self._exact = ""  # name of the opening tag; a closing tag with another name counts only outside of a sentence
        self._rest = ""  # not passed on yet
        self._passed: list[str] = []  # pieces that a lone closing tag would turn into reasoning
        self._mentions = 0

    def feed(self, text: str) -> Iterator[TextEvent]:
        """Yield the events of a piece of text. Its end may be held back until more text arrives."""
        if self._state == "plain":
            yield TextDelta(text)
            return
        if self._state == "watching" and not self._rest and not any(sign in text for sign in _SIGNS):
            self._passed.append(text)  # fast path for nearly all pieces
            yield TextDelta(text)
            return
        self._rest += text
        yield from self._read(final=False)

    def separate(self) -> None:
        """Note that the server sends reasoning outside of the text.

        Then a lone closing tag in the text is only a mention.
        """
        self._begins_inside = False
        self._separate = True
        if self._state == "watching":
            self._state = "plain"

    def end_text(self) -> Iterator[TextEvent]:
        """Pass on the held-back text before a tool call. Text after the call is never reasoning."""
        yield from self._read(final=True)
        self._state = "plain"
        self._assumed = False

    def finish(self, *, complete: bool) -> Iterator[TextEvent]:
        """Yield the last events.

        `complete`: the model ended its answer, so text that was assumed to be reasoning is the answer.
        """
        yield from self._read(final=True)
        if self._assumed and complete and (answer := "".join(self._passed).strip()):
            yield TextDelta(answer)

    def _read(self, *, final: bool) -> Iterator[TextEvent]:
        """Process the rest until a state makes no more progress."""
        while self._rest:
            state = self._state
            length = len(self._rest)
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
        """Look for a tag at the beginning. White space and a partial tag wait for more."""
        text = self._rest.lstrip(_INVISIBLE)
        if opening := _OPENING.match(text):
            self.has_reasoning = True
            self._assumed = False
            self._rest = text[opening.end() :]
            if not opening["empty"]:
                self._state = "inside"
                self._exact = _name_of(opening[0])
                self._end = _END_OF_MARK.get(opening[0].lower(), _END_OF_NAMED)
        elif closing := _ANY_END.match(text):
            # No text precedes the tag. It ends empty reasoning, or reasoning that the server sent outside of the text.
            self.has_reasoning = True
            self._begins_inside = False
            self._rest = text[closing.end() :]
        elif final or (text and not _begins_tag(text, opening=True)):
            if self._begins_inside:
                self._state = "inside"
                self._assumed = True
                self._end = _ANY_END
                self._exact = ""
            else:
                self._state = "plain" if self.has_reasoning or self._separate else "watching"
            if self.has_reasoning:
                self._rest = text  # without the lines between the reasoning and the answer

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
        self._state = "start"
        self._begins_inside = False
        self._assumed = False
        self.has_reasoning = True

    def _waiting(self) -> int:
        """Return how many characters at the end may be the beginning of a closing tag, or of a quoted one."""
        length = _waiting_for_end(self._rest)
        return length + self._rest[: len(self._rest) - length].endswith(_QUOTES)

    def _end_of_reasoning(self, *, final: bool) -> tuple[int | None, int, int]:
        """Return (start, end, 0) of the closing tag, else (None, 0, number of characters that wait for more).

        Characters wait if the next one decides whether the tag is quoted.
        """
        for closing in self._end.finditer(self._rest):
            at, behind = closing.span()
            quote = self._rest[at - 1 : at]
            if quote in _QUOTES:
                if behind == len(self._rest) and not final:
                    return None, 0, behind - at + 1
                if self._rest[behind : behind + 1] == quote:
                    continue
            if self._assumed and self._is_in_code(at):
                continue
            if self._exact in ("", _name_of(closing[0])) or not self._is_mentioned(at):
                return at, behind, 0
        return None, 0, 0

    def _is_in_code(self, at: int) -> bool:
        """Return whether a tag is in a code block.

        A model that was assumed to reason may have answered at once.
        """
        if self._mentions == MAX_MENTIONS:
            return False
        self._mentions += 1
        return len(_FENCE.findall("".join(self._passed) + self._rest[:at])) % 2 == 1

    def _is_mentioned(self, at: int) -> bool:
        """Return whether a closing tag with another name than the opening tag is within a sentence."""
        before = "".join(self._passed[-2:]) + self._rest[:at]
        return before.endswith(_BEFORE_MENTION)

    def _think(self, text: str) -> Iterator[TextEvent]:
        if not self._passed:
            text = text.lstrip()
        if text:
            self._passed.append(text)
            yield ReasoningDelta(text)

    def _read_text(self, *, final: bool) -> Iterator[TextEvent]:
        closing = _ANY_END.search(self._rest)
        if closing is None:
            yield from self._pass(len(self._rest) - (0 if final else _waiting_for_end(self._rest)))
            return
        yield from self._pass(closing.start())
        length = closing.end() - closing.start()
        before = "".join(self._passed)
        undecided = before.endswith(_BEFORE_MENTION) or _open_quotes(before)
        if not final and undecided and len(self._rest) < length + LOOKAHEAD:
            return
        if _is_end(before, self._rest[length:]):
            yield TextBecameReasoning()
            self._rest = self._rest[length:]
            self._state = "start"
            self.has_reasoning = True
            return
        self._mentions += 1
        yield from self._pass(length)
        if self._mentions == MAX_MENTIONS:
            self._state = "plain"

    def _pass(self, length: int) -> Iterator[TextEvent]:
        """Pass on this number of characters of the rest as text."""
        text = self._rest[:length]
        self._rest = self._rest[length:]
        if text:
            self._passed.append(text)
            yield TextDelta(text)


def _open_quotes(before: str) -> list[str]:
    """Return the quotation marks that the last line of a text opens and does not close."""
    line = before[before.rfind("\n") + 1 :]
    return [quote for quote in _QUOTES if line.count(quote) % 2]


def _is_end(before: str, behind: str) -> bool:
    """Return whether a lone closing tag ends reasoning. In code, or in a sentence about tags, it does not."""
    line = before[before.rfind("\n") + 1 :]
    if not before.strip() or len(_FENCE.findall(before)) % 2 or line.count("`") % 2:
        return False
    if _OPENING.search(_CODE.sub("", before)) or behind[:1] in _open_quotes(before):
        return False  # the text mentions both tags, or quotes this one
    spoken = line.rstrip()
    if not spoken or not line.endswith(_BEFORE_MENTION):
        return True
    return (line != spoken and spoken.endswith(_SENTENCE_END)) or not _SENTENCE_CONTINUES.match(behind)


def split_reasoning(text: str) -> tuple[str, str]:
    """Return the reasoning at the beginning of a text, and the answer. Without a closing tag the answer is empty.

    Used for rows that were stored before this filter existed.
    """
    if not _OPENING.match(text.lstrip(_INVISIBLE)):
        return "", text
    reader = ThoughtFilter()
    events = [*reader.feed(text), *reader.finish(complete=True)]
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    return reasoning, "".join(event.text for event in events if isinstance(event, TextDelta))


def without_reasoning(text: str) -> str:
    """Return the answer in a text that may begin with tagged reasoning."""
    return split_reasoning(text)[1]
