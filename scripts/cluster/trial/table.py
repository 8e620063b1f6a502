"""The table of what was tried and survived, in docs/operations.md between its marks; each run replaces its own rows."""

import re
from collections.abc import Iterable

from scripts.cluster.trial.suffer import Outcome, requests_words
from tests.product import ROOT

GUIDE = ROOT / "docs" / "operations.md"
BEGIN, END = "<!-- tried: made by make test-cluster -->", "<!-- tried: end -->"
KINDS = ("uploads", "summaries", "runs", "approvals", "questions")
HEAD = f"| fault | 20 answers | {' | '.join(KINDS)} | requests | `/readyz` | all back after |"


def row(outcome: Outcome, ready: str) -> str:
    back = "never" if outcome.back is None else f"{outcome.back:.0f} s"
    kinds = [str(outcome.results[kind]) for kind in ("answers", *KINDS)]
    return f"| {' | '.join([outcome.fault.said, *kinds, requests_words(outcome), ready, back])} |"


def load_row(said: str, about: str) -> str:
    """Of what is no fault: one sentence instead of the cells."""
    return f"| {about} | {said} |" + " |" * (len(KINDS) + 3)


def written(rows: Iterable[str], order: Iterable[str]) -> None:
    """Puts the rows in; those of other faults stay. `order`: what the faults say, in their order."""
    text = GUIDE.read_text()
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    known = {_first(each): each for each in re.findall(r"^\| .+ \|$", old, re.M)}
    known |= {_first(each): each for each in rows}
    lines = [HEAD, re.sub(r"[^|]+", "---", HEAD), *(known[said] for said in order if said in known)]
    GUIDE.write_text("\n".join([before.rstrip("\n") + "\n", BEGIN, *lines, END + after]))


def _first(row: str) -> str:
    return row.split("|")[1].strip()
