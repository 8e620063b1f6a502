"""Show the numbers of workbooks as their number formats do (ECMA-376 part 1, sections 18.8.30 and 18.8.31).

A workbook stores 0.075 and the format `0.0%`, and a person sees 7.5%. `format_number` returns the text that the person
sees. Dates with day, month and year are an exception: they become ISO dates, since 3/4/2026 is ambiguous.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache

from readers.text.hidden import hidden_text

GENERAL = "General"
_DATE = "yyyy-mm-dd"
_TIME = "h:mm:ss"
_ACCOUNTING = '_({0}* #,##0{1}_);_({0}* \\(#,##0{1}\\);_({0}* "-"{2}_);_(@_)'
# Formats that a file names by number only. 27 to 36 and 50 to 58 are dates and times of East Asia.
BUILT_IN = {
    0: GENERAL,
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    5: '"$"#,##0_);\\("$"#,##0\\)',
    6: '"$"#,##0_);\\("$"#,##0\\)',
    7: '"$"#,##0.00_);\\("$"#,##0.00\\)',
    8: '"$"#,##0.00_);\\("$"#,##0.00\\)',
    9: "0%",
    10: "0.00%",
    11: "0.00E+00",
    12: "# ?/?",
    13: "# ??/??",
    14: "m/d/yyyy",
    15: "d-mmm-yy",
    16: "d-mmm",
    17: "mmm-yy",
    18: "h:mm AM/PM",
    19: "h:mm:ss AM/PM",
    20: "h:mm",
    21: _TIME,
    22: "m/d/yyyy h:mm",
    **dict.fromkeys((27, 28, 29, 30, 31, 36, 50, 51, 52, 53, 54, 57, 58), _DATE),
    **dict.fromkeys((32, 33, 34, 35, 55, 56), _TIME),
    37: "#,##0_);\\(#,##0\\)",
    38: "#,##0_);\\(#,##0\\)",
    39: "#,##0.00_);\\(#,##0.00\\)",
    40: "#,##0.00_);\\(#,##0.00\\)",
    41: _ACCOUNTING.format("", "", ""),
    42: _ACCOUNTING.format('"$"', "", ""),
    43: _ACCOUNTING.format("", ".00", "??"),
    44: _ACCOUNTING.format('"$"', ".00", "??"),
    45: "mm:ss",
    46: "[h]:mm:ss",
    47: "mm:ss.0",
    48: "##0.0E+0",
    49: "@",
}
_MAX_LENGTH = 1_000  # characters of a format; Excel allows 255
_MAX_PLACES = 100  # digits behind the point
_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*+)"?|\\(?P<escaped>.?)|_(?P<width>.?)|\*(?P<fill>.?)|\[(?P<bracket>[^\]]*+)\]?'
    r"|(?P<general>General)|(?P<half>AM/PM|A/P|上午/下午)|(?P<power>E[+-])|(?P<digit>[0#?])"
    r"|(?P<clock>y+|m+|d+|h+|s+|e+|g+|b+)|(?P<other>.)",
    re.I | re.S,
)
_CONDITION = re.compile(r"(<=|>=|<>|<|>|=)\s*([-+]?\d{1,20}(?:\.\d{1,20})?)$")
_ELAPSED = re.compile(r"(h+|m+|s+)$", re.I)
_WHOLE = re.compile(r"[-+]?\d+$")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LAST_DAY = 2_958_466  # the day after 9999-12-31
_MAX_WHOLE_LENGTH = 21  # digits; a longer number is shown with a power of ten
_SMALLEST = Decimal("1e-9")  # a smaller number is shown with a power of ten
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
_PRECISE = Context(prec=15, rounding=ROUND_HALF_UP)  # digits that Excel keeps


@dataclass(frozen=True, slots=True)
class _Token:
    """A part of a section. `kind`: the name of a group of `_TOKEN`; `text` for a literal; `elapsed` for `[h]`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Section:
    """One of the up to four parts of a format. `operator` and `operand`: the condition for its numbers."""

    tokens: tuple[_Token, ...]
    operator: str = ""
    operand: Decimal = Decimal(0)

    def has(self, *kinds: str) -> bool:
        return any(token.kind in kinds for token in self.tokens)

    def holds(self, value: Decimal) -> bool:
        order = value.compare(self.operand)
        return {
            "<": order < 0,
            "<=": order <= 0,
            ">": order > 0,
            ">=": order >= 0,
            "=": order == 0,
            "<>": order != 0,
        }[self.operator]


def format_number(value: float | str, code: str, *, since_1904: bool = False) -> str:
    """Return a number as its format shows it.

    `value`: the number, or its digits as the file has them, which may be more than a float holds. `since_1904`: the
    workbook counts days from 1904. A value that the format hides is marked as hidden.
    """
    try:
        number = Decimal(value.strip() if isinstance(value, str) else repr(value))
    except InvalidOperation:
        return str(value)
    if not number.is_finite() or abs(number.adjusted()) > 308:
        return str(value)
    if not _WHOLE.match(str(number)):
        number = _PRECISE.plus(number)
    sections = _sections(code[:_MAX_LENGTH])
    section, unsigned = _choose_section(sections, number)
    if section is None:
        return hidden_text(_general(number)) if number else ""
    return " ".join(_number(number, section, unsigned=unsigned, since_1904=since_1904).split())


def format_text(text: str, code: str) -> str:
    """Return a text as the last section of its format shows it. A text that the format hides is marked as hidden."""
    sections = _sections(code[:_MAX_LENGTH])
    section = next((each for each in sections if each.has("@")), sections[3] if len(sections) > 3 else None)
    if section is None:
        return text
    if not section.tokens:
        return hidden_text(text) if text.strip() else ""
    return "".join(text if each.kind == "@" else each.text if each.kind == "text" else "" for each in section.tokens)


def is_date(code: str) -> bool:
    """Return whether a format shows numbers as dates, times or durations."""
    return any(section.has("clock", "half", "elapsed") for section in _sections(code[:_MAX_LENGTH])[:1])


@lru_cache(maxsize=1_000)
def _sections(code: str) -> tuple[_Section, ...]:
    sections: list[_Section] = []
    tokens: list[_Token] = []
    condition = ("", Decimal(0))
    for token in (*_tokens(code), _Token(";", "")):
        if token.kind == ";":
            sections.append(_Section(tuple(tokens), *condition))
            tokens = []
            condition = ("", Decimal(0))
        elif token.kind == "condition" and (match := _CONDITION.match(token.text)):
            condition = (match[1], Decimal(match[2]))
        else:
            tokens.append(token)
    return tuple(sections)


def _tokens(code: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(code):
        kind = match.lastgroup or ""
        text = match[kind] or ""
        if kind in ("quoted", "escaped"):
            yield _Token("text", text)
        elif kind == "width":  # as wide as the character that follows
            yield _Token("text", " ")
        elif kind == "bracket":
            yield from _bracket(text)
        elif kind == "clock" and text[0].lower() in "gb":  # the name of an era, which Excel shows in few languages
            continue
        elif kind == "other":
            yield _Token(text if text in ".,%/@;" else "text", text)
        elif kind != "fill":
            yield _Token(kind, text)


def _bracket(text: str) -> Iterator[_Token]:
    """Yield the currency, the condition or the unit of time in brackets. Colours and languages show nothing."""
    if text.startswith("$"):
        yield _Token("text", text[1:].partition("-")[0])
    elif _ELAPSED.match(text):
        yield _Token("elapsed", text.lower())
    elif _CONDITION.match(text):
        yield _Token("condition", text)


def _choose_section(sections: Sequence[_Section], number: Decimal) -> tuple[_Section | None, bool]:
    """Return the section for a number, None if no section applies, and whether the number is shown without its sign."""
    numeric = [each for each in sections[:3] if len(sections) == 1 or not each.has("@")]
    if not numeric:
        return _Section((_Token("general", ""),)), False
    if any(each.operator for each in numeric):
        at = next(
            (
                at
                for at, each in enumerate(numeric)
                if (each.holds(number) if each.operator else at == len(numeric) - 1)
            ),
            -1,
        )
        section = numeric[at]
        unsigned = section.operator in ("<", "<=") and section.operand <= 0
    else:
        at = 0 if number > 0 or len(numeric) == 1 else 1 if number < 0 else 2 if len(numeric) > 2 else 0
        section = numeric[at]
        unsigned = at == 1
    if not section.tokens:
        return (None, False) if len(sections) > 1 else (_Section((_Token("general", ""),)), False)
    return section, unsigned


def _number(number: Decimal, section: _Section, *, unsigned: bool, since_1904: bool) -> str:
    if section.has("clock", "half", "elapsed"):
        return _date(number, section.tokens, since_1904=since_1904)
    sign = "-" if number < 0 and not unsigned else ""
    number = abs(number)
    if section.has("general", "@"):
        shows = ("general", "@")
        return sign + "".join(
            _general(number) if each.kind in shows else each.text if each.kind in ("text", "%") else ""
            for each in section.tokens
        )
    if not section.has("digit"):
        return sign + "".join(each.text for each in section.tokens if each.kind in ("text", "/", "%", ".", ","))
    number = _EXACT.scaleb(number, 2 * sum(each.kind == "%" for each in section.tokens))
    if section.has("/") and _is_fraction(section.tokens):
        shown_number = _fraction(number, section.tokens)
    elif section.has("power"):
        shown_number = _scientific(number, section.tokens)
    else:
        shown_number = _digits(number, section.tokens)
    # Excel shows no sign for a number that is rounded to zero.
    return sign + shown_number if re.search("[1-9]", shown_number) else shown_number


def _general(number: Decimal) -> str:
    if number == number.to_integral_value() and number.adjusted() < _MAX_WHOLE_LENGTH:
        return f"{number:f}".partition(".")[0] if number else "0"
    if number.adjusted() < _MAX_WHOLE_LENGTH and abs(number) >= _SMALLEST:
        return f"{number:f}".rstrip("0")
    mantissa, _, power = f"{number.normalize():E}".partition("E")
    return f"{mantissa}E{power[:1]}{power[1:].zfill(2)}"


def _digits(number: Decimal, tokens: Sequence[_Token]) -> str:
    """Return a number with its digits in the places of the format, and literals before, between and after them."""
    point = next((at for at, each in enumerate(tokens) if each.kind == "."), len(tokens))
    ends = [at for at, each in enumerate(tokens[:point]) if each.kind == "digit"]
    last = ends[-1] if ends else -1
    commas = [at for at, each in enumerate(tokens) if each.kind == ","]
    behind = max((at for at, each in enumerate(tokens) if each.kind == "digit"), default=-1)
    scaled = sum(last < at < point or at > behind for at in commas)  # each divides by a thousand
    grouped = any(ends[0] < at < last for at in commas) if ends else False
    places = sum(each.kind == "digit" for each in tokens[point:])
    number = _rounded(_EXACT.scaleb(number, -3 * scaled), places)
    whole, _, fraction = f"{number:f}".partition(".")
    return _integer_part(whole.lstrip("0"), tokens[:point], grouped=grouped) + _decimals(fraction, tokens[point:])


def _rounded(number: Decimal, places: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-min(places, _MAX_PLACES)), context=_EXACT)


def _integer_part(digits: str, tokens: Sequence[_Token], *, grouped: bool) -> str:
    """Fill the places before the point from the right. The first place takes all digits that are left."""
    places_left = sum(each.kind == "digit" for each in tokens)
    if not places_left:  # such as `.00`, which has no place for them
        return "".join(each.text for each in tokens if each.kind in ("text", "%", "/")) + digits
    parts: list[str] = []
    position = 0
    for token in reversed(tokens):
        if token.kind != "digit":
            parts.append(token.text if token.kind in ("text", "%", "/") else "")
            continue
        places_left -= 1
        own = digits[-1:] if places_left else digits
        digits = digits[: len(digits) - len(own)]
        for sign in reversed(own or {"0": "0", "?": " "}.get(token.text, "")):
            parts.append(f"{sign}," if grouped and position and position % 3 == 0 and sign != " " else sign)
            position += 1
    return "".join(reversed(parts))


def _decimals(digits: str, tokens: Sequence[_Token]) -> str:
    parts: list[str] = []
    at = 0
    for token in tokens:
        if token.kind == "digit":
            rest = digits[at:]
            parts.append(rest[:1] if rest.strip("0") or token.text == "0" else " " if token.text == "?" else "")
            at += 1
        elif token.kind in ("text", "%", ".", "/"):
            parts.append(token.text)
    return "".join(parts) if any(each.isdigit() for each in parts) else "".join(parts).replace(".", "", 1)


def _scientific(number: Decimal, tokens: Sequence[_Token]) -> str:
    split = next(at for at, each in enumerate(tokens) if each.kind == "power")
    mantissa = tokens[:split]
    point = next((at for at, each in enumerate(mantissa) if each.kind == "."), len(mantissa))
    width = max(sum(each.kind == "digit" for each in mantissa[:point]), 1)
    places = sum(each.kind == "digit" for each in mantissa[point:])
    power = 0
    if number:
        power = number.adjusted() // width * width
        if _rounded(_EXACT.scaleb(number, -power), places).adjusted() >= width:
            power += width
    sign = "-" if power < 0 else "+" if tokens[split].text[1] == "+" else ""
    exponent = _integer_part(str(abs(power)).lstrip("0"), tokens[split + 1 :], grouped=False)
    return f"{_digits(_EXACT.scaleb(number, -power), mantissa)}{tokens[split].text[0]}{sign}{exponent}"


def _is_fraction(tokens: Sequence[_Token]) -> bool:
    slash = next(at for at, each in enumerate(tokens) if each.kind == "/")
    before = any(each.kind == "digit" for each in tokens[:slash])
    return before and any(each.kind == "digit" or each.text.isdigit() for each in tokens[slash + 1 :])


def _fraction(number: Decimal, tokens: Sequence[_Token]) -> str:
    """Return a number as a fraction, such as `1 1/2`, with the denominator or the digits that the format names."""
    slash = next(at for at, each in enumerate(tokens) if each.kind == "/")
    first = slash
    while first and tokens[first - 1].kind == "digit":
        first -= 1
    behind = slash + 1
    while behind < len(tokens) and (tokens[behind].kind == "digit" or tokens[behind].text.isdigit()):
        behind += 1
    denominator = "".join(each.text for each in tokens[slash + 1 : behind])
    exact = Fraction(number)
    if denominator.isdigit() and int(denominator):
        part = Fraction(round(exact * int(denominator)), 1)
        numerator, below = int(part), int(denominator)
    else:
        near = exact.limit_denominator(10 ** min(len(denominator), 5) - 1)
        numerator, below = near.numerator, near.denominator
    whole_tokens = tokens[:first]
    mixed = any(each.kind == "digit" for each in whole_tokens)
    whole = numerator // below if mixed else 0
    numerator -= whole * below
    before = "".join(each.text for each in whole_tokens if each.kind == "text")
    after = "".join(each.text for each in tokens[behind:] if each.kind in ("text", "%"))
    lead = before.strip() and before
    parts = [str(whole)] if mixed and (whole or not numerator) else []
    if numerator or not mixed:
        parts.append(f"{numerator}/{below}")
    return f"{lead}{' '.join(parts)}{after}"


def _date(number: Decimal, tokens: Sequence[_Token], *, since_1904: bool) -> str:
    """Return a date, a time or a duration. A number that is no date is shown as a number."""
    elapsed = any(each.kind == "elapsed" for each in tokens)
    if elapsed:
        return ("-" if number < 0 else "") + _clock(abs(number), tokens, None)
    if number < 0 or number >= _LAST_DAY:
        return _general(number)
    units = set(_units(tokens))
    day_and_time = _day_and_seconds(number, tokens)
    day = _day(day_and_time[0], since_1904=since_1904)
    if {"y", "m", "d"} <= units:
        time_of_day = f"T{_iso_time(day_and_time[1])}" if units & {"h", "s", "minute"} else ""
        return f"{day.year:04}-{day.month:02}-{day.day:02}{time_of_day}"
    return _clock(number, tokens, day)


@dataclass(frozen=True, slots=True)
class _Day:
    """A day of Excel's calendar, which has a 29 February 1900 and begins with a day 0. `weekday`: 0 is Monday."""

    year: int
    month: int
    day: int
    weekday: int


def _day(serial: int, *, since_1904: bool) -> _Day:
    if not since_1904 and serial == 60:
        return _Day(1900, 2, 29, 2)
    if not since_1904 and serial == 0:
        return _Day(1900, 1, 0, 5)
    first = date(1904, 1, 1) if since_1904 else date(1899, 12, 31 if serial < 60 else 30)
    try:
        day = first + timedelta(days=serial)
    except OverflowError:  # the last years of a workbook that counts from 1904
        day = date.max
    return _Day(day.year, day.month, day.day, (day.weekday() - (not since_1904 and serial < 60)) % 7)


def _units(tokens: Sequence[_Token]) -> Iterator[str]:
    """Yield the unit of each part of a date: its letter, or `minute` for an `m` next to hours or seconds."""
    clocks = [each for each in tokens if each.kind in ("clock", "elapsed")]
    letters = ["", *(each.text[0].lower() for each in clocks), ""]
    for at, each in enumerate(clocks, 1):
        beside_time = len(each.text) < 3 and (letters[at - 1] == "h" or letters[at + 1] == "s")
        if letters[at] == "m" and (beside_time or each.kind == "elapsed"):
            yield "minute"
        else:
            yield "y" if letters[at] == "e" else letters[at]


def _second_decimals(tokens: Sequence[_Token]) -> int:
    """Return the digits behind the seconds, such as 1 in `mm:ss.0`."""
    count = 0
    for at, each in enumerate(tokens):
        if each.kind == "." and at + 1 < len(tokens) and tokens[at + 1].text == "0":
            count = next((n for n, other in enumerate(tokens[at + 1 :]) if other.text != "0"), len(tokens) - at - 1)
    return min(count, 9)


def _day_and_seconds(number: Decimal, tokens: Sequence[_Token]) -> tuple[int, Decimal]:
    """Return the day and the seconds of the day. Seconds are rounded to the digits that are shown."""
    seconds = _rounded(_EXACT.multiply(number, Decimal(86_400)), _second_decimals(tokens))
    days = int(seconds // 86_400)
    return days, seconds - days * 86_400


def _iso_time(seconds: Decimal) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def _clock(number: Decimal, tokens: Sequence[_Token], day: _Day | None) -> str:
    """Return a date or time in the order of its format. Without `day`, the first unit counts all of the time."""
    days, seconds = _day_and_seconds(number, tokens)
    whole = int(seconds)
    total = days * 86_400 + whole
    hour, minute, second = whole // 3600, whole // 60 % 60, whole % 60
    halves = any(each.kind == "half" for each in tokens)
    units = _units(tokens)
    parts: list[str] = []
    fraction = f"{seconds % 1:f}".partition(".")[2]
    zeros = 0
    for token in tokens:
        width = len(token.text)
        if token.kind == "half":
            first, _, second_half = token.text.partition("/")
            parts.append(first if hour < 12 else second_half)
        elif token.kind == "elapsed":
            unit = next(units)
            count = {"h": total // 3600, "minute": total // 60, "s": total}[unit]
            parts.append(str(count).zfill(width))
        elif token.kind == "clock":
            unit = next(units)
            if unit in ("h", "minute", "s"):
                count = {"h": (hour % 12 or 12) if halves else hour, "minute": minute, "s": second}[unit]
                parts.append(str(count).zfill(min(width, 2)))
            elif day:
                parts.append(_date_unit(unit, width, day))
        elif token.kind == "digit":
            parts.append(fraction[zeros : zeros + 1])
            zeros += 1
        elif token.kind in ("text", ".", "/", ",", "%"):
            parts.append(token.text)
    return "".join(parts)


def _date_unit(unit: str, width: int, day: _Day) -> str:
    if unit == "y":
        return f"{day.year % 100:02}" if width < 3 else f"{day.year:04}"
    names, count = (_MONTHS, day.month) if unit == "m" else (_DAYS, day.day)
    name = names[day.month - 1 if unit == "m" else day.weekday]
    if width < 3:
        return str(count).zfill(width)
    return name[:1] if width == 5 and unit == "m" else name[:3] if width == 3 else name
