"""Decide whether a server read only a part of a prompt (docs/develop/context.md, “What was read”).

Counts alone prove nothing. Some servers report only the tokens that their cache did not have, some divide characters by
four, some have a vocabulary that needs fewer tokens. So a low count is a suspicion. The server's own window proves it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple, TypedDict

from llm.types.model_call import AllocatedWindow, Usage

Script = Literal["latin", "cjk", "other"]
SCRIPTS: tuple[Script, ...] = ("latin", "cjk", "other")

SUSPICIOUS_SHARE = 0.6  # share of our count; a lower report is suspicious
MIN_MISSING = 300  # tokens; a smaller difference may come from chat templates
MIN_PLAUSIBLE = 256  # tokens; a server that reports fewer did not count
LOW_SHARE = 0.97  # share of our count; a server that reports less is asked for its window
# Bounds of the server's count divided by ours.
MIN_RATIO = 0.5
MAX_RATIO = 2.0
UNKNOWN_TOKENIZER_RATIO = 0.7  # for an unknown vocabulary; the lowest measured ratio is 0.82, for Chinese
MAX_REPORTS = 20  # stored reports per script, and stored newest calls
# The minimum of the texts' tokens divided by the tools' tokens for which the server's format of tools hardly matters.
MIN_TEXTS_PER_TOOLS = 5
DOMINANT_SHARE = 0.8  # a prompt with at least this share of one script counts for that script
READ_WHOLE_SHARE = 0.85  # share of our count; a prompt counts as read whole if the server reports as much

# The proof by three calls, see `ReportedCounts.proven_window`.
SAME_COUNT_TOLERANCE = 0.01  # share of the first count
MIN_GROWTH = 1.2  # a prompt's tokens divided by those of the prompt before
MIN_NEW_SHARE = 0.75  # share of a report; the report may count only the new part of a prompt that grew by as much
MIN_PROOF_CALLS = 3
MIN_SERVER_WINDOW = 2_048  # tokens; no server in use has a smaller window

_MAX_SAMPLE = 16_000  # characters of a prompt in which the scripts are counted
_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
_LATIN = re.compile("[A-Za-z\\s!-/:-@\\[-`{-~\u00c0-\u024f\u1e00-\u1eff\u2000-\u206f]")
_CHARACTERS_PER_TOKEN: Mapping[Script, int] = {"latin": 4, "cjk": 1, "other": 2}  # estimates, to weigh the scripts
LATIN: Mapping[Script, float] = {"latin": 1.0}


def script_shares(texts: Sequence[str]) -> Mapping[Script, float]:
    """Return the share of each script in the tokens of the texts, estimated from samples.

    Digits, emoji and other characters outside of alphabets are `other`, since vocabularies differ most there.
    """
    step = max(1, len(texts) // 400)
    sampled = texts[::step]
    max_characters = _MAX_SAMPLE // max(1, len(sampled))
    characters: dict[Script, int] = {"latin": 0, "cjk": 0, "other": 0}
    for text in sampled:
        sample = text[:max_characters]
        cjk = len(_CJK.findall(sample))
        latin = len(_LATIN.findall(sample))
        characters["cjk"] += cjk
        characters["latin"] += latin
        characters["other"] += len(sample) - cjk - latin
    weights = {script: count / _CHARACTERS_PER_TOKEN[script] for script, count in characters.items()}
    total = sum(weights.values())
    return {script: weight / total for script, weight in weights.items() if weight} if total else LATIN


class SentTokens(NamedTuple):
    """Our token counts for one call. `texts` excludes images and replayed reasoning. `tools`: the tool definitions.

    `plain`: the call had no images and no replayed reasoning. `scripts`: see `script_shares`.
    """

    texts: int
    tools: int = 0
    plain: bool = True
    scripts: Mapping[Script, float] = LATIN

    @property
    def total(self) -> int:
        return self.texts + self.tools

    @property
    def script(self) -> Script | None:
        """Return the script of at least `DOMINANT_SHARE` of the prompt; None for a mixture."""
        return next((script for script, share in self.scripts.items() if share >= DOMINANT_SHARE), None)


@dataclass(frozen=True, slots=True)
class Truncation:
    """A proven truncation. Of `sent` tokens the server read `read`, since its `window` is too small."""

    read: int
    sent: int
    window: int
    server: str

    @property
    def missing(self) -> int:
        return max(0, self.sent - self.read)


@dataclass(frozen=True, slots=True)
class TruncationSuspicion:
    """An unexplained low count, which proves nothing. `reported` includes cached tokens."""

    reported: int
    sent: int


class ReportedCountsJson(TypedDict, total=False):
    """`ReportedCounts` as stored in the database."""

    scripts: dict[Script, list[tuple[int, int]]]
    calls: list[tuple[int, int]]
    largest_whole: int


@dataclass(frozen=True, slots=True)
class ReportedCounts:
    """Counts that a model's server reported for its newest calls. Stored as JSON with the model.

    `scripts`: pairs of our count and the server's, for prompts that were nearly all in one script. `calls`: the newest
    calls, oldest first, each as our count and the reported one with cached tokens. `largest_whole`: our count of the
    largest prompt that was read whole.
    """

    scripts: Mapping[Script, Sequence[tuple[int, int]]] = field(default_factory=dict)
    calls: Sequence[tuple[int, int]] = ()
    largest_whole: int = 0

    @classmethod
    def from_json(cls, stored: ReportedCountsJson) -> "ReportedCounts":
        """Parse the stored form, which is empty for a model without calls."""
        scripts: dict[Script, Sequence[tuple[int, int]]] = {
            name: [(counted, reported) for counted, reported in stored.get("scripts", {}).get(name, ())]
            for name in SCRIPTS
        }
        calls = [(counted, reported) for counted, reported in stored.get("calls", ())]
        return cls(scripts, calls, stored.get("largest_whole", 0))

    def as_json(self) -> ReportedCountsJson:
        """Return the form to store."""
        scripts = {name: list(pairs) for name, pairs in self.scripts.items() if pairs}
        return {"scripts": scripts, "calls": list(self.calls), "largest_whole": self.largest_whole}

    def ratio(self, scripts: Mapping[Script, float]) -> float | None:
        """Return the ratio of the server's count to ours for a text in these scripts; None if most has no reports.

        Each script counts with its lowest ratio, at most 1: a vocabulary needs more tokens for some languages of a
        script than for others, and a change of the language must not look like a truncation.
        """
        ratios = {script: self._lowest_ratio(script) for script in scripts}
        if sum(share for script, share in scripts.items() if ratios[script] is not None) <= 0.5:
            return None
        return sum(share * (ratios[script] or 1.0) for script, share in scripts.items())

    def _lowest_ratio(self, script: Script) -> float | None:
        reported = [read / counted for counted, read in self.scripts.get(script, ()) if counted]
        return max(MIN_RATIO, min(1.0, *reported)) if reported else None

    def with_report(self, report: "CallReported") -> "ReportedCounts":
        """Return these counts with one more call, which must not be proven to be truncated."""
        sent = report.sent
        read = report.read
        scripts = {**self.scripts}
        largest = self.largest_whole
        representative = sent.plain and read >= MIN_PLAUSIBLE and sent.tools * MIN_TEXTS_PER_TOOLS <= sent.texts
        if representative and not report.doubted and sent.script is not None:
            scripts[sent.script] = [*self.scripts.get(sent.script, ()), (sent.total, read)][-MAX_REPORTS:]
        if read >= max(MIN_PLAUSIBLE, READ_WHOLE_SHARE * (self.ratio(sent.scripts) or 1.0) * sent.texts):
            largest = max(largest, sent.total)
        calls = [*self.calls, (sent.total, report.reported)][-MAX_REPORTS:]
        return ReportedCounts(scripts, calls, largest)

    def proven_window(self) -> tuple[int, Sequence[tuple[int, int]]] | None:
        """Return a window that the newest calls prove, and these calls; None if they prove none.

        The proof needs at least three calls with the same reported count, within 1 %. By our count, each of their
        prompts must be at least 20 % longer than the one before. No larger report may follow the first of them. Nothing
        is proven if a much longer prompt was read whole before, if the first prompt is too short, or if the server may
        report only the new part of each prompt.
        """
        for start in range(len(self.calls) - MIN_PROOF_CALLS, -1, -1):
            proof = _find_proof(self.calls[start:])
            if proof is not None:
                window = max(reported for _, reported in proof)
                return (window, proof) if window >= READ_WHOLE_SHARE * self.largest_whole else None
        return None


def _find_proof(calls: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]] | None:
    """Return the calls that repeat the first call's report although their prompts grow; None if they prove nothing."""
    proof = [calls[0]]
    upper_bound = calls[0][1] * (1 + SAME_COUNT_TOLERANCE)
    for counted, reported in calls[1:]:
        if reported > upper_bound:
            return None
        same = abs(reported - calls[0][1]) <= SAME_COUNT_TOLERANCE * calls[0][1]
        if same and counted >= MIN_GROWTH * proof[-1][0]:
            proof.append((counted, reported))
    is_long_enough = len(proof) >= MIN_PROOF_CALLS and calls[0][1] >= MIN_SERVER_WINDOW
    if (
        not is_long_enough
        or upper_bound >= proof[-1][0]
        or MAX_RATIO * proof[0][0] < calls[0][1]
        or _may_count_growth(calls)
    ):
        return None
    return proof


def _may_count_growth(calls: Sequence[tuple[int, int]]) -> bool:
    """Return whether most reports may count only the new part of a prompt, since the server's cache had the rest.

    Such a server repeats the same number if all messages of a conversation have about the same length. Its cache may
    also have the answers, so that a prompt grows by more than the reported count.
    """
    new = [counted - before >= MIN_NEW_SHARE * reported for (before, _), (counted, reported) in pairwise(calls)]
    return 2 * sum(new) >= len(new)


@dataclass(frozen=True, slots=True)
class CallReported:
    """One call: the tokens sent, and the usage that the provider reports. `doubted`: the report may be too low."""

    sent: SentTokens
    usage: Usage
    doubted: bool = False

    @property
    def reported(self) -> int:
        """Return the reported tokens plus the cached ones, even if the report already includes these."""
        return self.usage.input + self.usage.cached_input

    @property
    def read(self) -> int:
        """Return the reported tokens with or without the cached ones, whichever is nearer to our count."""
        total = self.sent.total
        return min(self.usage.input, self.reported, key=lambda tokens: abs(tokens - total))


def is_low(counts: ReportedCounts, sent: SentTokens, usage: Usage) -> bool:
    """Return whether the server reports so little that it should be asked for its window."""
    expected = sent.total * (counts.ratio(sent.scripts) or 1.0)
    reported = usage.input + usage.cached_input
    return MIN_PLAUSIBLE <= reported < LOW_SHARE * expected and expected - reported >= MIN_MISSING


def detect_truncation(
    counts: ReportedCounts,
    sent: SentTokens,
    usage: Usage,
    *,
    tokenizer_known: bool,
    allocated: AllocatedWindow | None = None,
) -> Truncation | TruncationSuspicion | None:
    """Return a proven or suspected truncation; None if differences in counting explain the reported tokens.

    `tokenizer_known`: our counts are those of the model's own tokenizer. `allocated`: the window that the server
    reports.
    """
    if not is_low(counts, sent, usage):
        return None
    ratio = counts.ratio(sent.scripts)
    reported = usage.input + usage.cached_input
    expected = round(sent.total * (ratio or 1.0))
    if allocated is not None and allocated.window is not None:
        window = allocated.window
        if window >= expected:
            return None  # the prompt fits into the window
        min_expected = sent.total * (ratio or (1.0 if tokenizer_known else UNKNOWN_TOKENIZER_RATIO))
        if usage.input <= window and (window < min_expected * LOW_SHARE or reported < MIN_RATIO * expected):
            return Truncation(reported, expected, window, allocated.server)
        return TruncationSuspicion(reported, sent.total)
    # Without the tools: some servers do not put them into the prompt.
    is_suspicious = reported < SUSPICIOUS_SHARE * (ratio or 1.0) * sent.texts
    is_much = (ratio or 1.0) * sent.texts - reported >= MIN_MISSING
    if tokenizer_known and is_suspicious and is_much and sent.total >= counts.largest_whole:
        return TruncationSuspicion(reported, sent.total)
    return None
