"""The tables of docs/operate/trials.md, between marks; each run replaces its own rows."""

import re
from collections.abc import Iterable

from contrib.cluster.proxy import PROXIES, Kind
from contrib.cluster.trial.suffer import Outcome, requests_words
from tests.product import ROOT

GUIDE = ROOT / "docs" / "operate" / "trials.md"
FIRST = next(iter(PROXIES.values()))  # through which all is tried; what is tried through others has a table of its own
TRIED = "<!-- tried: made by make test-cluster -->", "<!-- tried: end -->"
THROUGH_OTHERS = "<!-- through others: made by make test-cluster PROXY=nginx -->", "<!-- through others: end -->"
KINDS = ("uploads", "summaries", "runs", "approvals", "questions")
HEAD = f"| fault | 20 answers | {' | '.join(KINDS)} | requests | `/readyz` | all back after |"


def about(proxy: Kind, said: str) -> str:
    """What was tried through it, as the first cell of its row."""
    return said if proxy == FIRST else f"{proxy.called}: {said}"


def row(proxy: Kind, outcome: Outcome, ready: str) -> str:
    back = "never" if outcome.back is None else f"{outcome.back:.0f} s"
    kinds = [str(outcome.results[kind]) for kind in ("answers", *KINDS)]
    return f"| {' | '.join([about(proxy, outcome.fault.said), *kinds, requests_words(outcome), ready, back])} |"


def load_row(proxy: Kind, load: str, said: str) -> str:
    """Of what is no fault: one sentence instead of the cells."""
    return f"| {about(proxy, load)} | {said} |" + " |" * (len(KINDS) + 3)


def written(proxy: Kind, new: str, order: Iterable[str]) -> None:
    """Puts the row in; those of other faults stay. `order`: their first cells, of all proxies."""
    begin, end = TRIED if proxy == FIRST else THROUGH_OTHERS
    text = GUIDE.read_text()
    before, _, rest = text.partition(begin)
    old, _, after = rest.partition(end)
    known = {_first(each): each for each in re.findall(r"^\| .+ \|$", old, re.M)}
    known[_first(new)] = new
    lines = [HEAD, re.sub(r"[^|]+", "---", HEAD), *(known[said] for said in order if said in known)]
    GUIDE.write_text("\n".join([before.rstrip("\n") + "\n", begin, *lines, end + after]))


def _first(row: str) -> str:
    return row.split("|")[1].strip()
