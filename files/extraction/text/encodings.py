"""In which encoding a text is written: by its mark, as UTF-8, else by its language."""

import codecs
import re
from collections import Counter

from charset_normalizer import from_bytes

SAMPLE = 65_536  # bytes that are looked at
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MOST_CONTROLS = 0.01  # of a text's bytes; more are no text
_MOST_DAMAGE = 0.02  # of the bytes above 127 of a text in UTF-8 that was cut or joined in the wrong place
_DECLARATION = re.compile(rb"""(?:charset|encoding)\s*+=\s*+["']?\s*+([\w.:-]{1,40})""", re.I)
_BLANKS = frozenset(b" \n\r\t")

# Code pages by their part of Europe, those that texts come in most often first.
_WESTERN, _CENTRAL = ("cp1252", "cp850", "mac_roman"), ("cp1250", "iso8859_2", "cp852")
_TURKISH, _BALTIC = ("cp1254", "cp857"), ("cp1257", "cp775")
# Of each language its code pages, the letters beyond a to z that it is written with, and some of its frequent words.
_LANGUAGES = {
    "en": (_WESTERN, "éèêëïöüçñàáâäåæøœ", "the of and to in is that for it with as was on are by this be not from at"),
    "fr": (
        _WESTERN,
        "àâäæçéèêëîïôöœùûüÿ",
        "de la le et les des en un une du que est pour dans qui il au sur pas par",
    ),
    "de": (_WESTERN, "äöüßéèàáô", "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als"),
    "es": (_WESTERN, "áéíóúñüç", "de la que el en y los del las un por con una para es se no su al lo como"),
    "it": (_WESTERN, "àèéìíîòóùú", "di e che la il un per in una non sono del con della le si da dei alla gli"),
    "pt": (_WESTERN, "áâãàçéêíóôõúü", "de que e o a do da em um para com não uma os no se na por mais dos"),
    "nl": (_WESTERN, "áâçéèêëïíóöôúü", "de van het een en in is dat op te zijn voor met die niet aan er om ook als"),
    "da": (_WESTERN, "æøåéèêóäöü", "og i at det er en til på af den for med ikke som der de har et om kan"),
    "no": (_WESTERN, "æøåéèêóòôäöü", "og i det er på en til som av for at med den har ikke et om kan eller fra"),
    "sv": (_WESTERN, "äöåéèüáà", "och att det i en som på är av för med den till inte har de om ett var vi"),
    "fi": (
        _WESTERN,
        "äöåéšžü",
        "ja on ei että se ovat oli kun mutta myös tai kuin ole joka niin hän sen voi tämä",
    ),
    "is": (_WESTERN, "áéíóúýþæöð", "og að í á er sem til við um með það en ekki af var fyrir eru frá hann eða"),
    "ca": (_WESTERN, "àçéèíïóòúü·", "de la i el que a les en per un els amb una del no es dels al més són"),
    "sq": (_WESTERN, "çë", "të e në dhe i për një me që nga është se nuk u më do ka si ky janë"),
    "pl": (_CENTRAL, "ąćęłńóśźżéö", "i w na z nie do się że jest to o jak za po od przez dla ale co są"),
    "cs": (_CENTRAL, "áčďéěíňóřšťúůýžöü", "a v na se je že z do s o to k i za pro ve jsou by od jako"),
    "sk": (_CENTRAL, "áäčďéíľĺňóôŕšťúýžö", "a v na sa je že z do s o to k aj za pre vo sú by od ako"),
    "hu": (_CENTRAL, "áéíóöőúüűä", "a az és hogy nem is egy van ez meg csak volt de vagy ha már el azt mint lehet"),
    "ro": (_CENTRAL, "ăâîşţșțé", "de și în a la cu din pe nu o este care un pentru să au mai sau ce se"),
    "sl": (_CENTRAL, "čšžćđ", "je in v na se za da so ki z ne po pa s bi ali tudi o kot od"),
    "hr": (_CENTRAL, "čćđšž", "je i u na se za da su od s ne koji o kao iz ili a što to sam"),
    "tr": (_TURKISH, "çğıi̇öşüâîû", "ve bir bu için ile de da olarak daha çok en gibi olan sonra kadar ne o mi var her"),
    "lt": (_BALTIC, "ąčęėįšųūž", "ir yra kad su iš tai kaip į bet nuo buvo jo dėl o taip apie per ne ar pagal"),
    "lv": (_BALTIC, "āčēģīķļņōŗšūž", "un ir no ar uz par kas ka to tas nav arī pie vai bet tika lai kā līdz tā"),
    "et": (_BALTIC, "äöõüšž", "ja on ei et ka see oli kui oma selle mis või seda aga need ning üks kes siis olema"),
}
# Signs that stand in a text of any language.
_SIGNS = frozenset("\xa0\xad§©®°±²³·«»¡¿´µ¶£¥¢ªº¹¼½¾×–—‘’‚“”„•…‹›€™†‡‰")
_MOST_IN_RUNS = 0.3  # of the bytes above 127 in words of Latin letters; other scripts have hardly any that stand alone
_WORD = re.compile(r"[^\W\d_]+")
_FREQUENT = {name: words.split() for name, (_, _, words) in _LANGUAGES.items()}
_SIGN = 0.9
_RARER = 0.7  # for each code page that a language's texts come in more often
_ENOUGH = 6  # frequent words to tell a language by
_LEAST_SHARE = 0.1  # of a text's words that are frequent ones of its language; most have a quarter
_LEAST = 0.5  # what a language counts that the words do not speak for, beside 1 for the one they speak for


def decoded(data: bytes, encoding: str = "") -> tuple[str, str]:
    """The text, and the encoding it was in (`encoding`, if one is given). What does not fit becomes U+FFFD.

    Raises LookupError for an encoding that Python has no text codec of.
    """
    encoding = encoding or detected(data)
    return data.decode(encoding, "replace"), encoding


def detected(data: bytes) -> str:
    if mark := _marked(data):
        return mark
    if wide := _without_mark(data[:SAMPLE]):
        return wide
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        if declared := _declared(data):
            return declared
        # Ends at a line's end, so that no character is cut in two.
        sample = data if len(data) <= SAMPLE else data[:SAMPLE].rpartition(b"\n")[0] or data[:SAMPLE]
        return _legacy(sample)
    return "utf-8"


def language(words: Counter[str]) -> str:
    """That of a text of these words, in small letters; empty where it is none of those that are known here."""
    spoken = _spoken(words)
    best = max(spoken, key=lambda name: spoken[name])
    return best if spoken[best] >= max(_ENOUGH, _LEAST_SHARE * words.total()) else ""


def _spoken(words: Counter[str]) -> dict[str, int]:
    """How many of the words are frequent ones of each language."""
    return {name: sum(words[each] for each in known) for name, known in _FREQUENT.items()}


def is_text(head: bytes) -> bool:
    """Whether a file that begins so is text. A few control characters, pasted with it from elsewhere, do no harm."""
    if _marked(head) or _without_mark(head):
        return True
    controls = len(_CONTROLS.findall(head))
    return controls <= _MOST_CONTROLS * len(head) and head.count(0) * 100 <= controls


def _declared(data: bytes) -> str:
    """What HTML and XML say of themselves near their beginning, where Python knows it."""
    found = _DECLARATION.search(data[:1_024]) if data.lstrip().startswith(b"<") else None
    if found is None:
        return ""
    try:
        name = codecs.lookup(found[1].decode("ascii", "replace")).name
    except LookupError:
        return ""
    return "" if name.startswith("utf") else "cp1252" if name == "iso8859-1" else name  # as browsers take it


def _marked(head: bytes) -> str:
    return next((name for mark, name in _MARKS if head.startswith(mark)), "")


def _without_mark(head: bytes) -> str:
    """UTF-16 without its mark shows as zeros at every other place, those of spaces and line ends at least."""
    units = len(head) // 2
    if units < 8:
        return ""
    even, odd = head[0 : 2 * units : 2], head[1 : 2 * units : 2]
    for name, high, low in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        blanks = sum(low[at] in _BLANKS and not high[at] for at in range(units))
        if blanks and 0 not in low and high.count(0) * 20 >= units and not _CONTROLS.search(low):
            return name
    return ""


def _legacy(sample: bytes) -> str:
    high = sum(byte > 127 for byte in sample)
    if sample.decode("utf-8", "replace").count("\ufffd") <= _MOST_DAMAGE * high:
        return "utf-8"
    in_runs = sum(map(len, re.findall(rb"[\x80-\xff]{3,}", sample)))
    if in_runs <= _MOST_IN_RUNS * high:
        return _latin(sample)
    best = from_bytes(sample).best()
    return best.encoding if best else "cp1252"


def _latin(sample: bytes) -> str:
    """The code page in which the letters beyond a to z are those of the language that the words are in."""
    best, found = 0.0, _WESTERN[0]
    for page in dict.fromkeys(page for pages, _, _ in _LANGUAGES.values() for page in pages):
        text = sample.decode(page, "replace").lower()
        beyond = Counter(sign for sign in text if sign > "\x7f")
        words = Counter(_WORD.findall(text))
        likelihoods = _spoken(words)
        most = max(_ENOUGH, *likelihoods.values())
        for name, (pages, letters, _) in _LANGUAGES.items():
            if page in pages:
                fitting = sum(count * _fitting(sign, letters) for sign, count in beyond.items())
                speaking = _LEAST + likelihoods[name] / most
                score = (fitting / beyond.total()) ** 4 * speaking * _RARER ** pages.index(page)
                if score > best:
                    best, found = score, page
    return found


def _fitting(sign: str, letters: str) -> float:
    """A letter in the place of a sign is likelier than a sign in the place of a letter."""
    return 1 if sign in letters else _SIGN if sign in _SIGNS else 0
