"""Convert Rich Text Format (1.9.1) to Markdown, with headings, list labels, tables and notes.

Text is decoded by the code pages of its fonts. The file is scanned once from beginning to end.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from readers.text import hidden
from readers.text.tables import Cell, markdown

MARK = b"{\\rtf"
_TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,20})? ?|\\'(?P<byte>[0-9a-fA-F]{2})|\\(?P<sign>[^a-zA-Z])"
    rb"|(?P<brace>[{}])|(?P<text>[^\\{}\r\n]+)|[\r\n]+",
    re.DOTALL,
)
_BULLET = re.compile(r"^\s*[·•–▪◦§\ufffd\uf0a7\uf0b7]\t")
_MAX_DEPTH = 500  # nested groups
_CHARSETS = {
    128: "cp932",
    129: "cp949",
    134: "gb18030",
    136: "big5",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    77: "mac_roman",
}
_CODE_PAGES = {10000: "mac_roman", 936: "gb18030", 950: "big5", 65001: "utf-8"}
_SIGNS = {
    "tab": "\t",
    "line": "\n",
    "lquote": "‘",
    "rquote": "’",
    "ldblquote": "“",
    "rdblquote": "”",
    "bullet": "•",
    "emdash": "—",
    "endash": "–",
    "emspace": " ",
    "enspace": " ",
    "softline": "\n",
    "nestcell": " ",
    "nestrow": " ",
}
_ESCAPED = {b"~": "\xa0", b"_": "-", b"\\": "\\", b"{": "{", b"}": "}", b"\n": "\n", b"\r": "\n"}
# Invisible groups. Unknown groups that begin with \* are left out, too.
_INVISIBLE_GROUPS = frozenset(
    (
        *("colortbl", "stylesheet", "info", "pict", "object", "themedata", "datastore", "fldinst", "listtable"),
        *(
            "listoverridetable",
            "list",
            "listoverride",
            "rsidtbl",
            "generator",
            "xmlnstbl",
            "filetbl",
            "revtbl",
            "nonshppict",
            "ftnsep",
        ),
        *("ftnsepc", "aftnsep", "aftnsepc", "bkmkstart", "bkmkend", "xe", "tc", "sp", "atnid", "atnref", "atndate"),
    )
)
_SEPARATE = {
    **dict.fromkeys(("header", "headerl", "headerr", "headerf"), "Headers"),
    **dict.fromkeys(("footer", "footerl", "footerr", "footerf"), "Footers"),
    "annotation": "Comments",
    "footnote": "notes",
}


def is_rtf(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(MARK)


def rtf_to_markdown(data: bytes, left_out: Counter[str] | None = None) -> Iterator[str]:
    """Yield the pieces of the text. A damaged file is read up to the damage. Counts hidden text in `left_out`."""
    for part in _RtfScanner(data).parts():
        yield hidden.join_hidden(part, Counter() if left_out is None else left_out)


def count_pictures(data: bytes) -> int:
    return len(re.findall(rb"\{\\pict\b", data))


@dataclass(slots=True)
class _Group:
    """State of an open group."""

    unseen: bool = False
    separate: str = ""  # title of `_SEPARATE` under which its text is collected; empty: the main text
    fonts: bool = False  # whether it is the font table
    font: int = -1
    fallback: int = 1  # characters after each Unicode character, for programs without Unicode
    deleted: bool = False  # whether a tracked change has deleted or moved its text
    hidden: bool = False


@dataclass(slots=True)
class _RtfScanner:
    """Scanner of one file."""

    data: bytes
    page: str = "cp1252"
    group: _Group = field(default_factory=_Group)
    groups: list[_Group] = field(default_factory=list)
    opened: bool = False  # whether a group began right before this token
    starred: bool = False
    encodings: dict[int, str] = field(default_factory=dict)  # by font
    letters: bytearray = field(default_factory=bytearray)  # bytes of text that are not decoded yet
    skip: int = 0
    line: list[str] = field(default_factory=list)
    in_table: bool = False
    level: int = 0  # heading level of the paragraph; 0 for other text
    cells: list[Cell] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    separate: dict[str, list[str]] = field(default_factory=dict)  # texts outside the main text, by title
    notes: int = 0

    def parts(self) -> Iterator[str]:
        position = 0
        end = len(self.data)
        while position < end and (token := _TOKEN.match(self.data, position)):
            position = token.end()
            if token["word"]:
                word = token["word"].decode()
                number = _number(token["number"])
                if word == "bin":
                    position += max(0, number or 0)
                yield from self._word(word, number)
            else:
                self._other(token)
            self.opened = token["brace"] == b"{" or (self.opened and not token[0].strip())
        if self.cells:
            self.rows.append(self.cells)
        yield from self._table()
        yield from self._paragraph()
        yield from self._separate_texts()

    def _other(self, token: re.Match[bytes]) -> None:
        if token["brace"]:
            self._flush()
            self._open() if token["brace"] == b"{" else self._close()
        elif token["sign"] == b"*":
            self.starred = self.opened  # the mark counts only at the beginning of a group
        elif self.group.unseen or self.group.fonts:
            return
        elif token["byte"] or token["text"]:
            letters = bytes.fromhex(token["byte"].decode()) if token["byte"] else token["text"]
            skipped = min(self.skip, len(letters))
            self.skip -= skipped
            self.letters += letters[skipped:]
        elif token["sign"]:
            self._write(_ESCAPED.get(token["sign"], ""))

    def _open(self) -> None:
        if len(self.groups) < _MAX_DEPTH:
            self.groups.append(self.group)
            self.group = replace(self.group)
        self.starred = False

    def _close(self) -> None:
        closed_group = self.group
        if self.groups:
            self.group = self.groups.pop()
        if closed_group.separate and not self.group.separate:
            self.separate[closed_group.separate][-1] = " ".join(self.separate[closed_group.separate][-1].split())
        self.skip = 0

    def _word(self, word: str, number: int | None) -> Iterator[str]:
        starred = self.starred
        self.starred = False
        if word in _INVISIBLE_GROUPS or (starred and word not in _SEPARATE and word not in ("shppict", "shptxt")):
            self._flush()
            self.group.unseen = True
        elif word in _SEPARATE:
            self._begin(_SEPARATE[word])
        elif word == "fonttbl":
            self.group.fonts = True
        elif not self.group.unseen:
            yield from self._visible_word(word, number)

    def _begin(self, title: str) -> None:
        self._flush()
        if self.group.unseen or self.group.separate:
            return
        if title == "notes":
            self.notes += 1
            self._write(f"[^{self.notes}]")
        self.group.separate = title
        self.separate.setdefault(title, []).append("")

    def _visible_word(self, word: str, number: int | None) -> Iterator[str]:
        match word:
            case "u":
                self._unicode(number or 0)
            case "f" | "fcharset" | "ansicpg" | "mac" | "pc" | "pca" | "uc" | "cpg":
                self._encoding(word, number or 0)
            case "deleted" | "mvf" | "v" | "plain":
                self._visibility(word, on=number != 0)
            case "par" if self.group.deleted:  # the deleted end of a paragraph
                self._flush()
            case "par" | "sect" | "page" | "cell" | "row" if not self.group.separate:
                self._flush()
                yield from self._end(word)
            case "par" | "sect" | "page":
                self._write(" ")
            case "pard" | "intbl" | "outlinelevel":
                self._paragraph_property(word, number or 0)
            case _ if word in _SIGNS:
                self._write(_SIGNS[word])

    def _visibility(self, word: str, *, on: bool) -> None:
        """Begin or end hidden text, or text that a tracked change has deleted or moved away."""
        self._flush()
        if word == "v":
            self.group.hidden = on
        elif word == "plain":
            self.group.deleted = self.group.hidden = False
        else:
            self.group.deleted = on

    def _paragraph_property(self, word: str, number: int) -> None:
        if word == "outlinelevel":
            self.level = min(number + 1, 6) if number < 9 else 0
        else:
            self.in_table = word == "intbl"
            self.level = 0 if word == "pard" else self.level

    def _encoding(self, word: str, number: int) -> None:
        self._flush()
        if word == "f":
            self.group.font = number
        elif word == "uc":
            self.group.fallback = min(max(number, 0), 9)
        elif word == "fcharset":
            if number in _CHARSETS:
                self.encodings[self.group.font] = _CHARSETS[number]
        elif word in ("ansicpg", "cpg"):
            if word == "ansicpg":
                self.page = _code_page(number)
            else:
                self.encodings[self.group.font] = _code_page(number)
        else:
            self.page = {"mac": "mac_roman", "pc": "cp437"}.get(word, "cp850")

    def _unicode(self, number: int) -> None:
        self._write(chr(number % 65_536))
        self.skip = self.group.fallback

    def _flush(self) -> None:
        if self.letters:
            letters = bytes(self.letters)
            self.letters = bytearray()
            self._put(letters.decode(self.encodings.get(self.group.font, self.page), "replace"))

    def _write(self, text: str) -> None:
        self._flush()
        if not (self.group.unseen or self.group.fonts):
            self._put(text)

    def _put(self, text: str) -> None:
        if self.group.deleted:
            return
        if self.group.hidden:
            text = hidden.hidden_text(text)
        if self.group.separate:
            self.separate[self.group.separate][-1] += text
        else:
            self.line.append(text)

    def _end(self, word: str) -> Iterator[str]:
        """End a paragraph, a cell or a row."""
        if word == "cell":
            self.cells.append(Cell("".join(self.line)))
            self.line = []
        elif word == "row":
            self.rows.append(self.cells)
            self.cells = []
        elif self.in_table:
            self.line.append("\n")
        else:
            yield from self._table()
            yield from self._paragraph()

    def _paragraph(self) -> Iterator[str]:
        text = "".join(self.line)
        self.line = []
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins surrogate pairs of \u
        text = _BULLET.sub("- ", text)
        if text.strip():
            yield f"\n{'#' * self.level} {' '.join(text.split())}\n\n" if self.level else f"{text}\n\n"

    def _table(self) -> Iterator[str]:
        rows = self.rows
        self.rows = []
        if rows:
            yield markdown(rows) + "\n"

    def _separate_texts(self) -> Iterator[str]:
        for number, note in enumerate(self.separate.pop("notes", []), 1):
            yield f"[^{number}]: {note.strip()}\n"
        for title, texts in self.separate.items():
            if lines := list(dict.fromkeys(filter(None, map(str.strip, texts)))):
                yield f"\n{title}:\n" + "".join(f"- {line}\n" for line in lines)


def _number(digits: bytes | None) -> int | None:
    """Return the number of a control word. No program writes a very large one, so its value does not matter."""
    return max(min(int(digits), 2**31), -(2**31)) if digits else None


def _code_page(number: int) -> str:
    name = _CODE_PAGES.get(number, f"cp{number}")
    try:
        "".encode(name)
    except LookupError:
        return "cp1252"
    return name
