"""Pieces of text that become much longer HTML when repeated, or that take long to render.

`render_all` renders each of them, as long as an answer may be, with a limit of processor time for each.
"""

import resource

from chat.rendering.markdown import MAX_CHARACTERS, render
from chat.rendering.references import Source, Sources

LENGTH = 100_000
SECONDS = 4  # for the longest text; an idle machine takes about one, and a busy one up to twice as much
SOURCES = Sources({n: Source(n, "contract " * 20, f"/files/x/?{'y' * 80}") for n in range(1, 10)})


def _code(language: str, piece: str) -> str:
    return f"```{language}\n{piece * (19_000 // len(piece))}\n```\n\n"


DENSE = {
    "formulas with primes": "$$" + "x'" * 1_990 + "$$\n\n",
    "formulas that are all different": "".join(f"$$x_{{{number}}}" + "x'" * 1_980 + "$$\n\n" for number in range(100)),
    "formulas with ties": f"$${'x~' * 1_990}$$\n\n",
    "bold formulas": "$$\\mathbf{" + "a" * 3_900 + "}$$\n\n",
    "aligned formulas": "$$\\begin{align}" + r"a&=b\\" * 500 + "\\end{align}$$\n\n",
    "short formulas": "\\(a\\)",
    "formulas that cannot be read": "$" + "^" * 400 + "$ ",
    "formula blocks": "$$a$$\n",
    "json": _code("json", "( "),
    "nginx": _code("nginx", "a;"),
    "c": _code("c", "( "),
    "yaml": _code("yaml", "- a\n"),
    "python": _code("python", "( "),
    "empty code": "```\n```\n",
    "lists in lists": "".join("  " * depth + "- a\n" for depth in range(12)),
    "items": "- a\n",
    "items with space between": "- a\n\n",
    "numbered items in one another": "1. 1. 1. 1. a\n",
    "tasks": "- [ ] a\n",
    "small tables": "a|b\n-|-\n1|2\n\n",
    "wide tables": f"|{'a|' * 500}\n|{'-|' * 500}\n" + f"|{'a|' * 500}\n" * 60,
    "tables whose cells are not written": f"|{'a|' * 500}\n|{':-:|' * 500}\n" + "|\n" * 10_000,
    "links": "[a](http://a) ",
    "addresses": "<http://a> ",
    "images": "![](http://a) ",
    "links to one long address": f"[a]: http://{'a' * 2_000}\n\n" + "[a]\n" * 24_000,
    "links with one long title": f"[a]: http://a '{'&' * 2_000}'\n\n" + "[a]\n" * 24_000,
    "emphasis": "*a* ",
    "emphasis in emphasis": "***a***",
    "emphasis that does not end": "*a _b ",
    "code in a line": "`a`",
    "characters that are escaped": "&",
    "headings": "# a\n",
    "paragraphs": "a\n\n",
    "quotes": "> a\n\n",
    "quotes in quotes": "> > > > a\n\n",
    "citations": "[1]",
    "citations of many numbers": "[1,2,3,4,5,6,7,8,9]",
    "mentions": "@D2026-11-26-T01 ",
}


def text(name: str, length: int = LENGTH) -> str:
    piece = DENSE[name]
    return (piece * (length // len(piece) + 1))[:length]


def render_all() -> None:
    """Print the name of each text and render it. The kernel ends the process if one takes longer than `SECONDS`."""
    render("```json\n1\n```\n$a$", SOURCES)  # what is loaded once is nobody's
    for name in DENSE:
        print(name, flush=True)  # noqa: T201 - for whoever started the process
        usage = resource.getrusage(resource.RUSAGE_SELF)
        used = int(usage.ru_utime + usage.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (used + 1 + SECONDS, resource.RLIM_INFINITY))  # whole seconds
        render(text(name, MAX_CHARACTERS), SOURCES)
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # the end is no text
    print("all", flush=True)  # noqa: T201 - as above
