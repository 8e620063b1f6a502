"""Detect the encoding of a text (by byte order mark, as UTF-8, else with chardet) and the language of its words."""

import codecs
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chardet import DetectionDict

SAMPLE = 65_536  # bytes to examine
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, since this mark begins with UTF-16's mark
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MAX_CONTROLS = 0.01  # share of a text's bytes
_MAX_NULS = 0.001  # share of a text's bytes; one NUL is always allowed, since some programs end a text with it
_SHORTEST = 8  # bytes; a shorter file with a control character is not taken for text
_MAX_DAMAGE = 0.02  # share of the bytes above 127, for UTF-8 that was cut or joined in the wrong place
_BLANKS = frozenset(b" \n\r\t")

# Code pages by chardet's names, the most common first. The second group is from DOS and Macintosh. It differs from the
# first in few characters.
_COMMON_CODE_PAGES = (
    *("cp1252", "cp1250", "cp1251", "iso8859-1", "iso8859-15", "iso8859-2", "koi8-r", "cp1254", "cp1257", "cp1253"),
    *("cp1255", "cp1256", "cp1258", "cp874", "cp932", "gb18030", "big5hkscs", "cp949", "euc_jis_2004", "johab"),
    *("koi8-u", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-9"),
)
_OLD_CODE_PAGES = ("cp850", "cp852", "cp866", "cp775", "cp857", "cp855", "mac-roman", "mac-cyrillic")
_CODE_PAGE_RANKS = {name: rank for rank, name in enumerate((*_COMMON_CODE_PAGES, *_OLD_CODE_PAGES))}
# Code pages and their better-known subsets. The subset is used if it can decode the whole text.
_NARROWER = {"big5hkscs": "big5", "euc_jis_2004": "euc_jp"}
_FEW_HIGH_BYTES = 3  # bytes above 127; fewer say little about a code page
_OLD_CODE_PAGE_FACTOR = 0.97  # factor for the confidence in an old code page, for a text with fewer
_FALLBACK = "cp1252"
_DECLARED_CONFIDENCE = 0.95  # chardet's confidence in a code page that the text declares and that fits
# Frequent words by language.
_FREQUENT_WORDS = {
    name: words.split()
    for name, words in (
        ("en", "the of and to in is that for it with as was on are by this be not from at"),
        ("fr", "de la le et les des en un une du que est pour dans qui il au sur pas par"),
        ("de", "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als"),
        ("es", "de la que el en y los del las un por con una para es se no su al lo como"),
        ("it", "di e che la il un per in una non sono del con della le si da dei alla gli"),
        ("pt", "de que e o a do da em um para com não uma os no se na por mais dos"),
        ("nl", "de van het een en in is dat op te zijn voor met die niet aan er om ook als"),
        ("da", "og i at det er en til på af den for med ikke som der de har et om kan"),
        ("no", "og i det er på en til som av for at med den har ikke et om kan eller fra"),
        ("sv", "och att det i en som på är av för med den till inte har de om ett var vi"),
        ("fi", "ja on ei että se ovat oli kun mutta myös tai kuin ole joka niin hän sen voi tämä"),
        ("is", "og að í á er sem til við um með það en ekki af var fyrir eru frá hann eða"),
        ("ca", "de la i el que a les en per un els amb una del no es dels al més són"),
        ("sq", "të e në dhe i për një me që nga është se nuk u më do ka si ky janë"),
        ("pl", "i w na z nie do się że jest to o jak za po od przez dla ale co są"),
        ("cs", "a v na se je že z do s o to k i za pro ve jsou by od jako"),
        ("sk", "a v na sa je že z do s o to k aj za pre vo sú by od ako"),
        ("hu", "a az és hogy nem is egy van ez meg csak volt de vagy ha már el azt mint lehet"),
        ("ro", "de și în a la cu din pe nu o este care un pentru să au mai sau ce se"),
        ("sl", "je in v na se za da so ki z ne po pa s bi ali tudi o kot od"),
        ("hr", "je i u na se za da su od s ne koji o kao iz ili a što to sam"),
        ("tr", "ve bir bu için ile de da olarak daha çok en gibi olan sonra kadar ne o mi var her"),
        ("lt", "ir yra kad su iš tai kaip į bet nuo buvo jo dėl o taip apie per ne ar pagal"),
        ("lv", "un ir no ar uz par kas ka to tas nav arī pie vai bet tika lai kā līdz tā"),
        ("et", "ja on ei et ka see oli kui oma selle mis või seda aga need ning üks kes siis olema"),
    )
}
_MIN_FREQUENT_WORDS = 6  # frequent words needed for a decision
_LEAST_SHARE = 0.1  # share of its language's frequent words in a text; most texts have a quarter


def decode(data: bytes, encoding: str = "") -> tuple[str, str]:
    """Return the text and its encoding. Without `encoding` it is detected. Invalid bytes become U+FFFD.

    Raises `LookupError` for an encoding without a text codec in Python.
    """
    encoding = encoding or detect_encoding(data)
    return data.decode(encoding, "replace"), encoding


def detect_encoding(data: bytes) -> str:
    """Return the encoding of a text."""
    if mark := _encoding_of_mark(data):
        return mark
    if wide := _detect_utf_16(data[:SAMPLE]):
        return wide
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        # The sample ends at the end of a line, so that no character is cut in two.
        sample = data if len(data) <= SAMPLE else data[:SAMPLE].rpartition(b"\n")[0] or data[:SAMPLE]
        return _detect_from_sample(sample)
    return "utf-8"


def detect_language(words: Counter[str]) -> str:
    """Return the language of a text with these lower-case words, or "" if it is unknown."""
    counts = {name: sum(words[each] for each in frequent) for name, frequent in _FREQUENT_WORDS.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] >= max(_MIN_FREQUENT_WORDS, _LEAST_SHARE * words.total()) else ""


def is_text(head: bytes) -> bool:
    """Return whether a file with this beginning is text. A few pasted control characters do no harm."""
    if _encoding_of_mark(head) or _detect_utf_16(head):
        return True
    controls = len(_CONTROLS.findall(head))
    if controls == 1 and len(head) * _MAX_CONTROLS < 1:  # one in a short text
        return len(head) >= _SHORTEST and _is_utf_8(head)
    return controls <= _MAX_CONTROLS * len(head) and head.count(0) <= 1 + _MAX_NULS * len(head)


def _is_utf_8(head: bytes) -> bool:
    """Return whether the bytes are UTF-8. The last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _encoding_of_mark(head: bytes) -> str:
    return next((name for mark, name in _BYTE_ORDER_MARKS if head.startswith(mark)), "")


def _detect_utf_16(head: bytes) -> str:
    """Return the UTF-16 encoding of a text without a byte order mark, or "".

    Every other byte of UTF-16 is zero, at least next to blanks and line ends.
    """
    units = len(head) // 2
    if units < 8 or (head.count(0) == 1 and head.isascii()):  # one NUL is no blank of UTF-16 among ASCII
        return ""
    even = head[0 : 2 * units : 2]
    odd = head[1 : 2 * units : 2]
    for name, high, low in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        blanks = sum(low[at] in _BLANKS and not high[at] for at in range(units))
        if blanks and 0 not in low and high.count(0) * 20 >= units and not _CONTROLS.search(low):
            return name
    return ""


def _detect_from_sample(sample: bytes) -> str:
    """Return UTF-8 for a text that is damaged in a few places, else the code page that chardet finds likeliest.

    chardet also reads the declarations of HTML and XML. Of two equally likely code pages, the more common one wins.
    """
    import chardet  # noqa: PLC0415 - takes 30 ms, and few files are in an old code page

    candidates = chardet.detect_all(
        sample, compat_names=False, include_encodings=_CODE_PAGE_RANKS, no_match_encoding=_FALLBACK
    )
    high = sum(byte > 127 for byte in sample)
    damaged = sample.decode("utf-8", "replace").count("\ufffd") <= _MAX_DAMAGE * high
    if damaged and candidates[0]["confidence"] < _DECLARED_CONFIDENCE:
        return "utf-8"

    def likelihood(candidate: "DetectionDict") -> tuple[float, int]:
        name = candidate["encoding"] or _FALLBACK
        share = _OLD_CODE_PAGE_FACTOR if high < _FEW_HIGH_BYTES and name in _OLD_CODE_PAGES else 1
        return share * candidate["confidence"], -_CODE_PAGE_RANKS[name]

    likeliest = max(candidates, key=likelihood)["encoding"] or _FALLBACK
    narrower = _NARROWER.get(likeliest)
    if narrower and _can_decode(narrower, sample):
        return narrower
    # Browsers also read ISO 8859-1 as Windows-1252, which has all of its printable characters.
    return _FALLBACK if likeliest == "iso8859-1" else likeliest.replace("-", "_")


def _can_decode(encoding: str, sample: bytes) -> bool:
    try:
        sample.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
