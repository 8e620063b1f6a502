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

# Names of tags: DeepSeek's and Qwen's; Claude's imitators and Claude 3's own; Gemini's; a few fine-tunes; ByteDance's
# Seed-OSS. They are written in any case, with blanks and attributes, and not always closed by the name that opened.
_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning", "antthinking", "seed:think")
# Marks that are always written alike, with their ends: Mistral's Magistral; Kimi-VL's; Sky-T1's and OpenThinker's;
# Gemma 4's; gpt-oss', whose two channels follow each other directly or as messages of their own.
_FINAL = "<|channel|>final<|message|>"
_MARKS: dict[str, tuple[str, ...]] = {
    "[think]": ("[/think]",),
    "◁think▷": ("◁/think▷",),
    "<|begin_of_thought|>": ("<|end_of_thought|>",),
    "<|channel>thought": ("<channel|>",),
    "<|channel|>analysis<|message|>": (f"<|end|><|start|>assistant{_FINAL}", f"<|start|>assistant{_FINAL}", _FINAL),
}
LONGEST_TAG = 200  # characters, with its attributes
TextEvent = TextDelta | ReasoningDelta | TextBecameReasoning
_NAME = "|".join(sorted(_NAMES, key=len, reverse=True))
_ATTRIBUTE = r"""\s{1,4}[\w:-]{1,40}(?:=(?:"[^"<>]{0,100}"|'[^'<>]{0,100}'|[^\s"'<>]{1,100}))?"""
_NAMED_OPENING = rf"<\s{{0,4}}(?:{_NAME})(?:{_ATTRIBUTE}){{0,4}}\s{{0,4}}(?P<empty>/?)>"
_NAMED_END = rf"<\s{{0,4}}/\s{{0,4}}(?:{_NAME})\s{{0,4}}>"
_OPENING = re.compile("|".join((_NAMED_OPENING, *map(re.escape, _MARKS))), re.IGNORECASE)
# The beginning of a tag, up to the end of a piece.
_BEGUN = re.compile(r"<\s{0,4}(?P<slash>/?)\s{0,4}(?P<name>[a-z:]{0,12})(?P<rest>[^<>]*)", re.IGNORECASE)
_TAG_NAME = re.compile(rf"<\s{{0,4}}/?\s{{0,4}}({_NAME})\b", re.IGNORECASE)
_INVISIBLE = " \t\r\n\f\v\ufeff\u200b\u2060"  # before a tag: white space, a byte order mark, zero width
_SIGNS = ("<", "[", "◁")  # with which tags begin
_QUOTES = tuple("`\"'")  # around a tag that is mentioned
_FENCE = re.compile(r"^[ ]{0,3}(?:```|~~~)", re.MULTILINE)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
# A tag that a sentence speaks of has a blank or a quotation mark before it, and the sentence goes on behind it.
_BEFORE_MENTION = tuple(" \t\"'“‘«(")
_GOES_ON = re.compile(r"[ \t]+[a-z0-9(]|[ \t]*[,.;:)\"'”’»]")
_SENTENCE_END = tuple(".!?…:;。！？*")
BEHIND = 3  # characters behind a closing tag that tell an end from a mention
MAX_MENTIONS = 8  # of closing tags; what follows is text


def _pattern(*ends: str) -> re.Pattern[str]:
    return re.compile("|".join(ends), re.IGNORECASE)


_MARKED_ENDS = tuple(end for ends in _MARKS.values() for end in ends)
_ANY_END = _pattern(_NAMED_END, *map(re.escape, _MARKED_ENDS))
_END_OF_NAMED = _pattern(_NAMED_END)
_END_OF_MARK = {mark: _pattern(*map(re.escape, ends)) for mark, ends in _MARKS.items()}


def _begins_tag(text: str, *, opening: bool) -> bool:
    """Whether a text may be the beginning of a tag that ends thoughts; with `opening` also of one that begins them."""
    lower = text.lower()
    marks = (*_MARKS, *_MARKED_ENDS) if opening else _MARKED_ENDS
    if any(mark.startswith(lower) for mark in marks):
        return True
    begun = _BEGUN.fullmatch(text)
    if begun is None or len(text) > LONGEST_TAG or not (opening or begun["slash"] or not begun["name"]):
        return False
    if not begun["rest"]:
        return any(name.startswith(begun["name"].lower()) for name in _NAMES)
    if begun["slash"]:
        return begun["name"].lower() in _NAMES and begun["rest"].isspace()
    attributes = begun["rest"].lstrip()
    whole = begun["name"].lower() in _NAMES and (not attributes or attributes != begun["rest"] or attributes == "/")
    return whole and (opening or not attributes)


def _name_of(tag: str) -> str:
    """The name in a tag, in lower case; empty for a mark."""
    named = _TAG_NAME.match(tag)
    return named[1].lower() if named else ""


def _waiting_for_end(text: str) -> int:
    """The number of characters at the end of a text with which a tag that ends thoughts may begin."""
    start = max(0, len(text) - LONGEST_TAG)
    for at in range(start, len(text)):
        if text[at] in _SIGNS and _begins_tag(text[at:], opening=False):
            return len(text) - at
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
        self._end = _ANY_END  # with which the reasoning may end
        self._exact = ""  # the name of the tag that opened it; other names end it only where they are no mention
        self._rest = ""  # not passed on yet
        self._passed: list[str] = []  # what a lone closing tag would prove to be reasoning
        self._mentions = 0

    def feed(self, text: str) -> Iterator[TextEvent]:
        if self._state == "plain":
            yield TextDelta(text)
            return
        if self._state == "watching" and not self._rest and not any(sign in text for sign in _SIGNS):
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
        text = self._rest.lstrip(_INVISIBLE)
        if opening := _OPENING.match(text):
            self.found, self._assumed, self._rest = True, False, text[opening.end() :]
            if not opening["empty"]:
                self._state, self._exact = "inside", _name_of(opening[0])
                self._end = _END_OF_MARK.get(opening[0].lower(), _END_OF_NAMED)
        elif closing := _ANY_END.match(text):
            # Without text before it, it ends nothing: an empty thought, or one that the server has sent apart.
            self.found, self._begins_inside, self._rest = True, False, text[closing.end() :]
        elif final or (text and not _begins_tag(text, opening=True)):
            if self._begins_inside:
                self._state, self._assumed, self._end, self._exact = "inside", True, _ANY_END, ""
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
        length = _waiting_for_end(self._rest)
        return length + self._rest[: len(self._rest) - length].endswith(_QUOTES)

    def _end_of_reasoning(self, *, final: bool) -> tuple[int | None, int, int]:
        """Where the closing tag begins and ends; else how many characters wait until a quoted tag is told from it."""
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
        """Whether a block of code is open at a tag; a model that was assumed to reason may have answered at once."""
        if self._mentions == MAX_MENTIONS:
            return False
        self._mentions += 1
        return len(_FENCE.findall("".join(self._passed) + self._rest[:at])) % 2 == 1

    def _is_mentioned(self, at: int) -> bool:
        """Whether a tag of another name than the one that opened stands within a sentence."""
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
        length, before = closing.end() - closing.start(), "".join(self._passed)
        undecided = before.endswith(_BEFORE_MENTION) or _open_quotes(before)
        if not final and undecided and len(self._rest) < length + BEHIND:
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


def _open_quotes(before: str) -> list[str]:
    """The quotation marks that the last line of a text has opened and not closed."""
    line = before[before.rfind("\n") + 1 :]
    return [quote for quote in _QUOTES if line.count(quote) % 2]


def _is_end(before: str, behind: str) -> bool:
    """Whether a lone closing tag ends reasoning. In code, or in a sentence about tags, it does not."""
    line = before[before.rfind("\n") + 1 :]
    if not before.strip() or len(_FENCE.findall(before)) % 2 or line.count("`") % 2:
        return False
    if _OPENING.search(_CODE.sub("", before)) or behind[:1] in _open_quotes(before):
        return False  # the text speaks of both tags, or has this one between quotation marks
    spoken = line.rstrip()
    if not spoken or not line.endswith(_BEFORE_MENTION):
        return True
    return (line != spoken and spoken.endswith(_SENTENCE_END)) or not _GOES_ON.match(behind)


def split_reasoning(text: str) -> tuple[str, str]:
    """Return the reasoning that a text begins with, and its answer. Reasoning without an end has an empty answer.

    For rows that were stored before readers knew of tags.
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
