"""Convert formulas to LaTeX: those of Office (OMML, ECMA-376 part 1, section 22) and MathML 3."""

import re
from collections.abc import Callable
from html import escape, unescape
from typing import Any

from lxml import etree

Element = Any  # lxml's own class for elements is private

_LINE_END = r" \\ "
_MAX_DEPTH = 60  # levels of nested parts; deeper parts are left out
_SYMBOLS = """
α alpha  β beta  γ gamma  δ delta  ε epsilon  ζ zeta  η eta  θ theta  ι iota  κ kappa  λ lambda  μ mu  ν nu  ξ xi
π pi  ρ rho  σ sigma  τ tau  υ upsilon  φ phi  χ chi  ψ psi  ω omega
Γ Gamma  Δ Delta  Θ Theta  Λ Lambda  Ξ Xi  Π Pi  Σ Sigma  Υ Upsilon  Φ Phi  Ψ Psi  Ω Omega
± pm  ∓ mp  × times  ÷ div  · cdot  ∙ cdot  ≤ leq  ≥ geq  ≠ neq  ≈ approx  ≡ equiv  ∞ infty  ∂ partial  ∇ nabla
√ surd  ∈ in  ∉ notin  ⊂ subset  ⊆ subseteq  ⊃ supset  ⊇ supseteq  ∪ cup  ∩ cap  ∅ emptyset  ∀ forall  ∃ exists
¬ neg  ∧ wedge  ∨ vee  → to  ← leftarrow  ↔ leftrightarrow  ⇒ Rightarrow  ⇐ Leftarrow  ⇔ Leftrightarrow  ↦ mapsto
∑ sum  ∏ prod  ∫ int  ∬ iint  ∭ iiint  ∮ oint  ∝ propto  ∼ sim  ≅ cong  ⊥ perp  ∥ parallel  ∠ angle  ° circ  ′ prime
ℏ hbar  ℓ ell
"""
_WORDS = _SYMBOLS.split()
_COMMANDS = dict(zip(_WORDS[::2], _WORDS[1::2], strict=True))
_PLAIN = str.maketrans(
    {"−": "-", "∗": "*", "\u2061": "", "\u2062": "", "\xa0": " ", "{": r"\{", "}": r"\}", "\\": r"\backslash "}
)
_FUNCTIONS = frozenset(
    (
        *("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "log", "ln"),
        *("lg", "exp", "lim", "max", "min", "sup", "inf", "det", "gcd", "deg", "dim"),
    )
)
_ACCENTS = {"\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0305": "overline", "\u0307": "dot"}
_ACCENTS |= {"\u0308": "ddot", "\u20d7": "vec", "\u0306": "breve", "\u030c": "check"}
_FENCES = {"{": r"\{", "}": r"\}", "‖": r"\|", "⌊": r"\lfloor", "⌋": r"\rfloor", "⌈": r"\lceil", "⌉": r"\rceil"}
_FENCES |= {"⟨": r"\langle", "〈": r"\langle", "⟩": r"\rangle", "〉": r"\rangle", "": "."}


_MAX_MATHML_LENGTH = 200_000  # characters of one formula
_HTML_ENTITY = re.compile(r"&(?!(?:lt|gt|amp|quot|apos);)[a-zA-Z]\w{0,40};")  # entities that only HTML knows
_STYLED = re.compile(r"\{\\(?:displaystyle|textstyle|scriptstyle)\b(.*)\}$", re.S)
_WITHOUT_TEXT = frozenset(("mspace", "mphantom", "annotation", "annotation-xml", "none", "mprescripts"))
_POSITIONAL_ELEMENTS = frozenset(("mfrac", "mroot", "msup", "msub", "msubsup", "mover", "munder", "munderover"))
_ACCENT_COMMANDS = {"^": "hat", "ˆ": "hat", "~": "tilde", "˜": "tilde", "¯": "bar", "‾": "overline", "_": "overline"}
_ACCENT_COMMANDS |= {"˙": "dot", "¨": "ddot", "→": "vec", "⃗": "vec", "˘": "breve", "ˇ": "check"}


def mathml_to_latex(source: str) -> str:
    """Return the LaTeX of a `math` element, without dollar signs.

    This is the LaTeX of its annotation if it has one, else its converted parts.
    """
    if len(source) > _MAX_MATHML_LENGTH:
        return ""
    plain = _HTML_ENTITY.sub(lambda match: escape(unescape(match[0])), source)
    reader = etree.XMLParser(recover=True, resolve_entities=False, no_network=True, load_dtd=False)
    try:
        tree = etree.fromstring(plain.encode(), reader)
    except etree.XMLSyntaxError:
        return ""
    if tree is None:
        return ""
    for each in tree.iter("{*}annotation"):
        if "tex" in (each.get("encoding") or "").lower() and (text := (each.text or "").strip()):
            return strip_style(text)
    if stated := (tree.get("alttext") or "").strip():
        return strip_style(stated)
    return mathml_tree_to_latex(tree)


def mathml_tree_to_latex(element: Element) -> str:
    """Return the LaTeX of a parsed `math` element."""
    return " ".join(_row(element, 0).split())


def strip_style(source: str) -> str:
    """Return LaTeX on one line, without the `{\\displaystyle ...}` that Wikipedia writes around it."""
    source = " ".join(source.split())
    match = _STYLED.match(source)
    return match[1].strip() if match else source


def omml_to_latex(element: Element) -> str:
    """Return the LaTeX of an `m:oMath`, without dollar signs."""
    return " ".join(_children_latex(element, 0).split())


def _children_latex(element: Element | None, depth: int) -> str:
    if element is None or depth > _MAX_DEPTH:
        return ""
    return "".join(_part(child, depth + 1) for child in element)


def _part(element: Element, depth: int) -> str:
    name = _name(element)
    if name == "r":
        return "".join(_escape_text(text.text or "") for text in element.iterfind("{*}t"))
    rule = _RULES.get(name)
    if rule:
        return rule(element, depth)
    return "" if name.endswith("Pr") else _children_latex(element, depth)


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _escape_text(text: str) -> str:
    text = text.translate(_PLAIN)
    return "".join(f"\\{_COMMANDS[sign]} " if sign in _COMMANDS else sign for sign in text)


def _child_latex(element: Element, part: str, depth: int) -> str:
    return _children_latex(element.find(f"{{*}}{part}"), depth).strip()


def _property(element: Element, name: str, default: str = "") -> str:
    """Return the value of a property, or the default if it is missing. An empty value is returned as it is."""
    element_of_property = element.find(f"{{*}}{_name(element)}Pr/{{*}}{name}")
    if element_of_property is None:
        return default
    return next((value for key, value in element_of_property.attrib.items() if key.endswith("val")), "")


def _fraction(element: Element, depth: int) -> str:
    above = _child_latex(element, "num", depth)
    below = _child_latex(element, "den", depth)
    kind = _property(element, "type")
    if kind == "noBar":
        return rf"\genfrac{{}}{{}}{{0pt}}{{}}{{{above}}}{{{below}}}"
    return f"{above}/{below}" if kind == "lin" else rf"\frac{{{above}}}{{{below}}}"


def _scripts(element: Element, depth: int) -> str:
    base, below, above = (_child_latex(element, part, depth) for part in ("e", "sub", "sup"))
    base = base if len(base) == 1 or (base.startswith("\\") and base[1:].isalpha()) else f"{{{base}}}"
    scripts = (f"_{{{below}}}" if below else "") + (f"^{{{above}}}" if above else "")
    return f"{{}}{scripts}{base}" if _name(element) == "sPre" else base + scripts


def _root(element: Element, depth: int) -> str:
    degree = _child_latex(element, "deg", depth)
    return rf"\sqrt{f'[{degree}]' if degree else ''}{{{_child_latex(element, 'e', depth)}}}"


def _large(element: Element, depth: int) -> str:
    sign = _escape_text(_property(element, "chr", "∫") or "∫").strip()
    below = _child_latex(element, "sub", depth)
    above = _child_latex(element, "sup", depth)
    limits = (f"_{{{below}}}" if below else "") + (f"^{{{above}}}" if above else "")
    return f"{sign}{limits} {_child_latex(element, 'e', depth)}"


def _fenced(element: Element, depth: int) -> str:
    begin = _property(element, "begChr", "(")
    end = _property(element, "endChr", ")")
    parts = [_children_latex(part, depth).strip() for part in element.iterfind("{*}e")]
    inner = _property(element, "sepChr", "|").join(parts)
    begin = _FENCES.get(begin, begin)
    end = _FENCES.get(end, end)
    return rf"\left{begin} {inner} \right{end}"


def _function(element: Element, depth: int) -> str:
    name = _child_latex(element, "fName", depth)
    word = name.partition("_")[0].partition("^")[0].strip("{}")
    if word in _FUNCTIONS:
        name = "\\" + name.replace("{" + word + "}", word, 1)
    return f"{name} {_child_latex(element, 'e', depth)} "


def _accent(element: Element, depth: int) -> str:
    return rf"\{_ACCENTS.get(_property(element, 'chr', chr(0x302)), 'hat')}{{{_child_latex(element, 'e', depth)}}}"


def _bar(element: Element, depth: int) -> str:
    return (
        rf"\{'overline' if _property(element, 'pos') == 'top' else 'underline'}{{{_child_latex(element, 'e', depth)}}}"
    )


def _limit(element: Element, depth: int) -> str:
    mark = "_" if _name(element) == "limLow" else "^"
    return f"{_child_latex(element, 'e', depth)}{mark}{{{_child_latex(element, 'lim', depth)}}}"


def _matrix(element: Element, depth: int) -> str:
    rows = (
        " & ".join(_children_latex(cell, depth).strip() for cell in row.iterfind("{*}e"))
        for row in element.iterfind("{*}mr")
    )
    return rf"\begin{{matrix}} {_LINE_END.join(rows)} \end{{matrix}}"


def _lines(element: Element, depth: int) -> str:
    lines = (_children_latex(line, depth).strip() for line in element.iterfind("{*}e"))
    return rf"\begin{{aligned}} {_LINE_END.join(lines)} \end{{aligned}}"


_RULES: dict[str, Callable[[Element, int], str]] = {
    "f": _fraction,
    **dict.fromkeys(("sSup", "sSub", "sSubSup", "sPre"), _scripts),
    "rad": _root,
    "nary": _large,
    "d": _fenced,
    "func": _function,
    "acc": _accent,
    "bar": _bar,
    **dict.fromkeys(("limLow", "limUpp"), _limit),
    "m": _matrix,
    "eqArr": _lines,
}


def _row(element: Element | None, depth: int) -> str:
    """Return the LaTeX of all parts of a MathML element."""
    if element is None or depth > _MAX_DEPTH:
        return ""
    return "".join(_mathml(child, depth + 1) for child in element if isinstance(child.tag, str))


def _mathml(element: Element, depth: int) -> str:
    name = _name(element)
    if name in ("mi", "mn", "mo", "mtext", "ms"):
        return _letters(name, " ".join("".join(element.itertext()).split()))
    if name in _WITHOUT_TEXT:
        return " " if name == "mspace" else ""
    if name in _POSITIONAL_ELEMENTS:
        return _positional_mathml(name, element, depth)
    match name:
        case "semantics":
            return _mathml(element[0], depth) if len(element) and isinstance(element[0].tag, str) else ""
        case "msqrt":
            return rf"\sqrt{{{_row(element, depth).strip()}}}"
        case "mfenced":
            separator = (element.get("separators") or ",")[:1]
            parts = (_mathml(child, depth + 1).strip() for child in element if isinstance(child.tag, str))
            return f"{element.get('open', '(')}{separator.join(parts)}{element.get('close', ')')}"
        case "mtable":
            table = [row for row in element if _name(row) in ("mtr", "mlabeledtr")]
            rows = (" & ".join(_row(cell, depth).strip() for cell in row if _name(cell) == "mtd") for row in table)
            return rf"\begin{{matrix}} {_LINE_END.join(rows)} \end{{matrix}}"
        case _:
            return _row(element, depth)


def _letters(name: str, text: str) -> str:
    """Return the LaTeX of an element without parts: a name, a number, an operator or a text."""
    if name in ("mtext", "ms"):
        return rf"\text{{{text}}}" if text else " "
    if name == "mi" and text in _FUNCTIONS:
        return f"\\{text} "
    return f" {_escape_text(text)} " if name == "mo" and text.isalpha() else _escape_text(text)


def _positional_mathml(name: str, element: Element, depth: int) -> str:
    """Return a MathML element in which the position of a part gives its role. Missing parts are empty."""
    if depth > _MAX_DEPTH:
        return ""
    parts = [_mathml(child, depth + 1).strip() for child in element if isinstance(child.tag, str)]
    first, second, third = (*parts, "", "", "")[:3]
    if name == "mfrac":
        bar = element.get("linethickness", "") not in ("0", "0px", "0pt")
        return rf"\frac{{{first}}}{{{second}}}" if bar else rf"\genfrac{{}}{{}}{{0pt}}{{}}{{{first}}}{{{second}}}"
    if name == "mroot":
        return rf"\sqrt[{second}]{{{first}}}"
    mark = "".join(element[1].itertext()).strip() if name == "mover" and len(element) > 1 else ""
    if mark in _ACCENT_COMMANDS:
        return rf"\{_ACCENT_COMMANDS[mark]}{{{first}}}"
    base = first if len(first) == 1 or (first.startswith("\\") and first[1:].isalpha()) else f"{{{first}}}"
    if name in ("msup", "mover"):
        return f"{base}^{{{second}}}"
    return f"{base}_{{{second}}}" + (f"^{{{third}}}" if name in ("msubsup", "munderover") else "")
