"""Write the tables of docs/operate/trials.md, which stand between marks. Each run replaces its own rows."""

import re
from collections.abc import Iterable

from contrib.cluster.proxy import PROXIES, Kind
from contrib.cluster.trial.fault_trial import FaultOutcome, requests_words
from tests.product import ROOT

GUIDE = ROOT / "docs" / "operate" / "trials.md"
FIRST = next(iter(PROXIES.values()))  # the proxy of the first table; trials with other proxies have their own table
TRIED = "<!-- tried: made by make test-cluster -->", "<!-- tried: end -->"
THROUGH_OTHERS = "<!-- through others: made by make test-cluster PROXY=nginx -->", "<!-- through others: end -->"
KINDS = ("uploads", "summaries", "runs", "approvals", "questions")
HEAD = f"| fault | 20 answers | {' | '.join(KINDS)} | requests | `/readyz` | all back after |"


def about(proxy: Kind, description: str) -> str:
    """Return the first cell of a row: the description of a trial, with the proxy's name unless it is the first."""
    return description if proxy == FIRST else f"{proxy.called}: {description}"


def row(proxy: Kind, outcome: FaultOutcome, ready: str) -> str:
    back = "never" if outcome.back is None else f"{outcome.back:.0f} s"
    kinds = [str(outcome.results[kind]) for kind in ("answers", *KINDS)]
    return f"| {' | '.join([about(proxy, outcome.fault.description), *kinds, requests_words(outcome), ready, back])} |"


def load_row(proxy: Kind, load: str, summary: str) -> str:
    """Return the row of a load trial: one sentence instead of the cells of a fault trial."""
    return f"| {about(proxy, load)} | {summary} |" + " |" * (len(KINDS) + 3)


def written(proxy: Kind, new: str, order: Iterable[str]) -> None:
    """Write the row into its table and keep the other rows. `order`: the first cells of all rows, for all proxies."""
    begin, end = TRIED if proxy == FIRST else THROUGH_OTHERS
    text = GUIDE.read_text()
    before, _, rest = text.partition(begin)
    old, _, after = rest.partition(end)
    row_of = {_first(each): each for each in re.findall(r"^\| .+ \|$", old, re.M)}
    row_of[_first(new)] = new
    lines = [HEAD, re.sub(r"[^|]+", "---", HEAD), *(row_of[cell] for cell in order if cell in row_of)]
    GUIDE.write_text("\n".join([before.rstrip("\n") + "\n", begin, *lines, end + after]))


def _first(row: str) -> str:
    return row.split("|")[1].strip()
