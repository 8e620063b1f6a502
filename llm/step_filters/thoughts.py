"""Separate the reasoning in a model's text from the answer: `<think>…</think>` and similar tags.

Servers without a parser for reasoning send it as part of the answer, in two forms:

1. The text begins with an opening tag. The text between the tags is reasoning, the rest is the answer.
2. The chat template wrote the opening tag, so only the closing one arrives. The text before it was passed on as an
   answer, and `TextBecameReasoning` retracts it. For models that are known to do so, the text counts as reasoning from
   the start.

Only the beginning of a step can be reasoning. A tag in a code block, or in a sentence about tags, stays text.

`ThoughtFilter` has four states. `start`: it looks for an opening tag. `inside`: it looks for the closing tag.
`watching`: it passes text on, and a lone closing tag may come. `plain`: it passes everything on.
"""

import re
from collections.abc import Iterator
from typing import Literal

from llm.types.model_call import ReasoningDelta, TextBecameReasoning, TextDelta

# Tag names of DeepSeek and Qwen, Claude 3 and its imitators, Gemini, a few fine-tunes, and ByteDance's Seed-OSS. Models
# write the tags in any case, with blanks and attributes, and may close them with another name.
_TAG_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning", "antthinking", "seed:think")
# Fixed opening marks with their closing marks, of Mistral's Magistral, Kimi-VL, Sky-T1 and OpenThinker, Gemma 4, and
# gpt-oss. The two channels of gpt-oss follow each other directly, or are separate messages.
_FINAL = "<|channel|>final<|message|>"
_FIXED_MARKS: dict[str, tuple[str, ...]] = {
    "[think]": ("[/think]",),
    "◁think▷": ("◁/think▷",),
    "<|begin_of_thought|>": ("<|end_of_thought|>",),
    "<|channel>thought": ("<channel|>",),
    "<|channel|>analysis<|message|>": (f"<|end|><|start|>assistant{_FINAL}", f"<|start|>assistant{_FINAL}", _FINAL),
}
MAX_TAG_LENGTH = 200  # characters, including attributes
TextEvent = TextDelta | ReasoningDelta | TextBecameReasoning
_NAME = "|".join(sorted(_TAG_NAMES, key=len, reverse=True))
_ATTRIBUTE = r"""\s{1,4}[\w:-]{1,40}(?:=(?:"[^"<>]{0,100}"|'[^'<>]{0,100}'|[^\s"'<>]{1,100}))?"""
_NAMED_OPENING = rf"<\s{{0,4}}(?:{_NAME})(?:{_ATTRIBUTE}){{0,4}}\s{{0,4}}(?P<empty>/?)>"
_NAMED_END = rf"<\s{{0,4}}/\s{{0,4}}(?:{_NAME})\s{{0,4}}>"
_OPENING = re.compile("|".join((_NAMED_OPENING, *map(re.escape, _FIXED_MARKS))), re.IGNORECASE)
# The beginning of a tag at the end of a piece.
_PARTIAL_TAG = re.compile(r"<\s{0,4}(?P<slash>/?)\s{0,4}(?P<name>[a-z:]{0,12})(?P<rest>[^<>]*)", re.IGNORECASE)
_TAG_NAME = re.compile(rf"<\s{{0,4}}/?\s{{0,4}}({_NAME})\b", re.IGNORECASE)
# Characters that may precede a tag: white space, a byte order mark, zero-width characters.
_INVISIBLE = " \t\r\n\f\v\ufeff\u200b\u2060"
_FIRST_CHARACTERS = ("<", "[", "◁")  # first characters of tags
_QUOTES = tuple("`\"'")  # around a tag that the text only mentions
_FENCE = re.compile(r"^[ ]{0,3}(?:```|~~~)", re.MULTILINE)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
# A tag that the text only mentions follows a blank or a quotation mark, and the sentence goes on after it.
_BEFORE_MENTION = tuple(" \t\"'“‘«(")
_SENTENCE_CONTINUES = re.compile(r"[ \t]+[a-z0-9(]|[ \t]*[,.;:)\"'”’»]")
_SENTENCE_END = tuple(".!?…:;。！？*")
LOOKAHEAD = 3  # characters after a closing tag; they show whether it ends the reasoning or is only mentioned
MAX_MENTIONS = 8  # closing tags that are only mentioned; after these, everything is text


def _compile(*ends: str) -> re.Pattern[str]:
    return re.compile("|".join(ends), re.IGNORECASE)


_FIXED_ENDS = tuple(end for ends in _FIXED_MARKS.values() for end in ends)
_ANY_END = _compile(_NAMED_END, *map(re.escape, _FIXED_ENDS))
_END_OF_NAMED = _compile(_NAMED_END)
_END_OF_MARK = {mark: _compile(*map(re.escape, ends)) for mark, ends in _FIXED_MARKS.items()}


def _begins_tag(text: str, *, opening: bool) -> bool:
    """Return whether a text may be the beginning of a closing tag, or with `opening` also of an opening tag."""
    lower = text.lower()
    marks = (*_FIXED_MARKS, *_FIXED_ENDS) if opening else _FIXED_ENDS
    if any(mark.startswith(lower) for mark in marks):
        return True
    partial = _PARTIAL_TAG.fullmatch(text)
    if partial is None or len(text) > MAX_TAG_LENGTH or not (opening or partial["slash"] or not partial["name"]):
        return False
    name = partial["name"].lower()
    if not partial["rest"]:
        return any(each.startswith(name) for each in _TAG_NAMES)
    if partial["slash"]:
        return name in _TAG_NAMES and partial["rest"].isspace()
    attributes = partial["rest"].lstrip()
    is_tag = name in _TAG_NAMES and (not attributes or attributes != partial["rest"] or attributes == "/")
    return is_tag and (opening or not attributes)


def _tag_name(tag: str) -> str:
    """Return the name in a tag in lower case, "" for a fixed mark."""
    match = _TAG_NAME.match(tag)
    return match[1].lower() if match else ""


def _partial_end_length(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a closing tag."""
    for start in range(max(0, len(text) - MAX_TAG_LENGTH), len(text)):
        if text[start] in _FIRST_CHARACTERS and _begins_tag(text[start:], opening=False):
            return len(text) - start
    return 0


class ThoughtFilter:
    """Filter that splits the text of one step into text and reasoning.

    `begins_inside`: the model is known to begin with reasoning, and its template wrote the opening tag.
    `has_reasoning`: the text so far contains reasoning.
    """

    def __init__(self, *, begins_inside: bool = False) -> None:
        self.has_reasoning = False
        self._state: Literal["start", "inside", "watching", "plain"] = "start"
        self._begins_inside = begins_inside
        self._has_separate_reasoning = False  # the server sends reasoning in a field of its own
        self._is_assumed = False  # the text is passed on as reasoning, without a tag that proves it
        self._end_pattern = _ANY_END  # tags that may end the reasoning
        # The name in the opening tag. A closing tag with another name ends the reasoning only outside of a sentence.
        self._opening_name = ""
        self._unread = ""  # text that is not passed on yet
        self._passed_on: list[str] = []  # pieces passed on, which a lone closing tag would turn into reasoning
        self._mentions = 0

    def feed(self, text: str) -> Iterator[TextEvent]:
        """Yield the events of a piece of text. The end of the piece may be held back until more text arrives."""
        if self._state == "plain":
            yield TextDelta(text)
            return
        if self._state == "watching" and not self._unread and not any(sign in text for sign in _FIRST_CHARACTERS):
            self._passed_on.append(text)  # fast path for nearly all pieces
            yield TextDelta(text)
            return
        self._unread += text
        yield from self._read(final=False)

    def note_separate_reasoning(self) -> None:
        """Note that the server sends reasoning in a field of its own. So the text only mentions a lone closing tag."""
        self._begins_inside = False
        self._has_separate_reasoning = True
        if self._state == "watching":
            self._state = "plain"

    def end_text(self) -> Iterator[TextEvent]:
        """Yield the events of the text that was held back before a tool call.

        Text after the call is never reasoning.
        """
        yield from self._read(final=True)
        self._state = "plain"
        self._is_assumed = False

    def finish(self, *, complete: bool) -> Iterator[TextEvent]:
        """Yield the last events. `complete`: the model ended its answer.

        Then text that was assumed to be reasoning is the answer.
        """
        yield from self._read(final=True)
        if self._is_assumed and complete and (answer := "".join(self._passed_on).strip()):
            yield TextDelta(answer)

    def _read(self, *, final: bool) -> Iterator[TextEvent]:
        """Yield the events of the unread text, until a state makes no more progress."""
        while self._unread:
            state = self._state
            length = len(self._unread)
            match state:
                case "start":
                    self._read_start(final=final)
                case "inside":
                    yield from self._read_reasoning(final=final)
                case "watching":
                    yield from self._read_text(final=final)
                case "plain":
                    yield TextDelta(self._unread)
                    self._unread = ""
            if (self._state, len(self._unread)) == (state, length):
                return

    def _read_start(self, *, final: bool) -> None:
        """Look for a tag at the beginning. White space and a partial tag stay unread until more text arrives."""
        text = self._unread.lstrip(_INVISIBLE)
        if opening := _OPENING.match(text):
            self.has_reasoning = True
            self._is_assumed = False
            self._unread = text[opening.end() :]
            if not opening["empty"]:
                self._state = "inside"
                self._opening_name = _tag_name(opening[0])
                self._end_pattern = _END_OF_MARK.get(opening[0].lower(), _END_OF_NAMED)
        elif closing := _ANY_END.match(text):
            # No text precedes the tag. It ends empty reasoning, or reasoning that the server sent in a field of its
            # own.
            self.has_reasoning = True
            self._begins_inside = False
            self._unread = text[closing.end() :]
        elif final or (text and not _begins_tag(text, opening=True)):
            if self._begins_inside:
                self._state = "inside"
                self._is_assumed = True
                self._end_pattern = _ANY_END
                self._opening_name = ""
            else:
                self._state = "plain" if self.has_reasoning or self._has_separate_reasoning else "watching"
            if self.has_reasoning:
                self._unread = text  # without the blank lines between the reasoning and the answer

    def _read_reasoning(self, *, final: bool) -> Iterator[TextEvent]:
        start, end, undecided = self._end_of_reasoning(final=final)
        if start is None:
            held_back = 0 if final else max(undecided, self._undecided_length())
            shown = self._unread[: len(self._unread) - held_back].rstrip()  # white space before the tag is not shown
            yield from self._pass_reasoning(shown)
            self._unread = "" if final else self._unread[len(shown) :]
            return
        yield from self._pass_reasoning(self._unread[:start].rstrip())
        self._unread = self._unread[end:]
        self._state = "start"
        self._begins_inside = False
        self._is_assumed = False
        self.has_reasoning = True

    def _undecided_length(self) -> int:
        """Return how many characters at the end may be the beginning of a closing tag, or of a quoted one."""
        length = _partial_end_length(self._unread)
        return length + self._unread[: len(self._unread) - length].endswith(_QUOTES)

    def _end_of_reasoning(self, *, final: bool) -> tuple[int | None, int, int]:
        """Return (start, end, 0) for the closing tag, else (None, 0, number of characters to hold back).

        Characters are held back if the next one decides whether the tag is quoted.
        """
        for closing in self._end_pattern.finditer(self._unread):
            start, end = closing.span()
            quote = self._unread[start - 1 : start]
            if quote in _QUOTES:
                if end == len(self._unread) and not final:
                    return None, 0, end - start + 1
                if self._unread[end : end + 1] == quote:
                    continue
            if self._is_assumed and self._is_in_code(start):
                continue
            if self._opening_name in ("", _tag_name(closing[0])) or not self._is_mentioned(start):
                return start, end, 0
        return None, 0, 0

    def _is_in_code(self, start: int) -> bool:
        """Return whether a tag is in a code block, as in an answer of a model that was only assumed to reason."""
        if self._mentions == MAX_MENTIONS:
            return False
        self._mentions += 1
        return len(_FENCE.findall("".join(self._passed_on) + self._unread[:start])) % 2 == 1

    def _is_mentioned(self, start: int) -> bool:
        """Return whether the closing tag at `start` is within a sentence."""
        before = "".join(self._passed_on[-2:]) + self._unread[:start]
        return before.endswith(_BEFORE_MENTION)

    def _pass_reasoning(self, text: str) -> Iterator[TextEvent]:
        if not self._passed_on:
            text = text.lstrip()
        if text:
            self._passed_on.append(text)
            yield ReasoningDelta(text)

    def _read_text(self, *, final: bool) -> Iterator[TextEvent]:
        closing = _ANY_END.search(self._unread)
        if closing is None:
            yield from self._pass_text(len(self._unread) - (0 if final else _partial_end_length(self._unread)))
            return
        yield from self._pass_text(closing.start())
        length = closing.end() - closing.start()
        before = "".join(self._passed_on)
        undecided = before.endswith(_BEFORE_MENTION) or _open_quotes(before)
        if not final and undecided and len(self._unread) < length + LOOKAHEAD:
            return
        if _ends_reasoning(before, self._unread[length:]):
            yield TextBecameReasoning()
            self._unread = self._unread[length:]
            self._state = "start"
            self.has_reasoning = True
            return
        self._mentions += 1
        yield from self._pass_text(length)
        if self._mentions == MAX_MENTIONS:
            self._state = "plain"

    def _pass_text(self, length: int) -> Iterator[TextEvent]:
        """Yield this number of characters of the unread text as text."""
        text = self._unread[:length]
        self._unread = self._unread[length:]
        if text:
            self._passed_on.append(text)
            yield TextDelta(text)


def _open_quotes(before: str) -> list[str]:
    """Return the quotation marks that the last line of a text opens and does not close."""
    line = before[before.rfind("\n") + 1 :]
    return [quote for quote in _QUOTES if line.count(quote) % 2]


def _ends_reasoning(before: str, after: str) -> bool:
    """Return whether a lone closing tag ends reasoning. In code, or in a sentence about tags, it does not."""
    line = before[before.rfind("\n") + 1 :]
    if not before.strip() or len(_FENCE.findall(before)) % 2 or line.count("`") % 2:
        return False
    if _OPENING.search(_CODE.sub("", before)) or after[:1] in _open_quotes(before):
        return False  # the text mentions both tags, or quotes this one
    trimmed = line.rstrip()
    if not trimmed or not line.endswith(_BEFORE_MENTION):
        return True
    return (line != trimmed and trimmed.endswith(_SENTENCE_END)) or not _SENTENCE_CONTINUES.match(after)


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
