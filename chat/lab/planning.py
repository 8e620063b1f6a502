"""Stored turns planned again, call by call, and held against what was sent."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from chat.context import cache
from chat.context.build import Prompt, SourceEntry
from chat.context.cache import CacheEntry, SentPrompt
from chat.context.types import ContextError
from chat.lab.past import AS_IT_WAS, Changed, Contexts, PastContext, Problem, Variation, made_with
from chat.models import Summary, Turn
from chat.prompts import builder
from chat.prompts.history import stored_result
from chat.prompts.report import FILE_KINDS, CallReport, stored
from core.errors import ProductError
from core.sentences import Sentence
from files.models import File
from llm.models import Model
from llm.services import cache_rule
from llm.types.model_call import Message, ReasoningState, ToolCall, Usage
from personas.services import texts_then
from personas.texts import BUILT_IN_DIGEST, TEXTS

NUMBERS = ("limit", "used", "tools_tokens", "sections", "dropped", "unloaded")
NAMED = 10  # problems of a turn that are named one by one
NOTHING: CacheEntry = {
    "expected": 0, "read": None, "written": None, "uncached": None, "missed_section": None, "reason": None,
}  # fmt: skip


def stored_turns() -> QuerySet[Turn]:
    """Those whose answers are complete and that have a report, with what planning them needs."""
    related = ("conversation__owner", "conversation__persona__budget_profile", "user_message", "answer__parent")
    of_run = ("step__run__task", "step__run__item", "step__run__owner")
    rows = Turn.objects.with_answer().exclude(status__in=Turn.LIVE).filter(report__has_key="calls")
    return rows.select_related(*related, *of_run)


class Planned(NamedTuple):
    """One model call: as it was `stored`, and the `report` of the same as it is planned under `context`."""

    stored: CallReport
    report: CallReport
    context: PastContext
    prompt: Prompt
    step: builder.Step


class Again(NamedTuple):
    """The calls of a turn, of those that a provider refused the last: as they were, and with the variation.

    `refused`: why it would not fit so; then `planned` has the calls before that one.
    """

    past: list[Planned]
    planned: list[Planned]
    refused: ContextError | None = None


@dataclass
class Replayer:
    """Plans turns again, best conversation by conversation and in their order: what a provider's cache would serve
    depends on the turn before, which is planned as well."""

    variation: Variation = AS_IT_WAS
    _sent: dict[UUID, dict[UUID, SentPrompt]] = field(default_factory=dict)  # by turn, then by model
    _place: UUID | None = None  # the conversation whose turns are in `_sent`

    def turn(self, turn: Turn) -> Again:
        """Raises `Changed` where the turn cannot be planned as it was."""
        if turn.conversation_id != self._place:
            self._place, self._sent = turn.conversation_id, {}
        found = _Turn(turn, self)
        again = found.again()
        self._sent[turn.pk] = found.sent
        return again

    def before(self, turn: Turn, model: Model) -> tuple[SentPrompt | None, bool]:
        """What the model was sent last in this conversation before the turn, None where that cannot be planned; and
        whether any model was sent anything."""
        earlier = stored_turns().filter(conversation=turn.conversation_id, finished__lte=turn.started)
        earlier = earlier.exclude(pk=turn.pk).order_by("-finished")
        asked = earlier if self.variation.model is not None else earlier.filter(answer__model=model)
        newest = asked.values_list("pk", flat=True).first()
        if newest is None:
            return None, earlier.exists()
        if newest not in self._sent:
            self._sent[newest] = {}  # whatever comes before that one is not looked at
            try:
                found = _Turn(earlier.get(pk=newest), self)
                found.again()
                self._sent[newest] = found.sent
            except ProductError:
                pass
        return self._sent[newest].get(model.pk), True


class _Turn:
    """One turn on its way; `sent`: what each model was sent last."""

    def __init__(self, turn: Turn, replayer: Replayer) -> None:
        self.turn, self.replayer = turn, replayer
        self.sent: dict[UUID, SentPrompt] = {}
        self._contexts = Contexts(turn, replayer.variation)
        self._steps = steps_of(turn)
        self._reminders: dict[bool, dict[int, str]] = {False: {}, True: {}}  # of append-only turns, plain and varied

    def again(self) -> Again:
        calls = list({call["cycle"]: call for call in self.turn.report["calls"]}.values())
        if problems := gone(calls):
            raise Changed(problems)
        try:
            past = [self._call(self._contexts.then(call)) for call in calls]
        except ContextError as error:
            raise Changed(
                [Problem("fits_no_more", Sentence("What was sent does not fit any more ({code}).", code=error.code))]
            ) from error
        for each in past:
            if problems := differences(each.stored, each.report):
                raise Changed([*other_texts(each.stored), *problems])
        if self.replayer.variation.empty:
            return Again(past, past)
        planned: list[Planned] = []
        for each in past:
            varied = self._contexts.varied(each.context)
            if each.stored["cycle"] > 1 and not varied.toolbox.definitions:
                break  # without tools a model answers at once
            try:
                planned.append(self._call(varied))
            except ContextError as error:
                return Again(past, planned, error)
        return Again(past, planned)

    def _call(self, context: PastContext) -> Planned:
        call, turn, varied = context.call, self.turn, context.base is not None
        reminders = self._reminders[varied]
        added = [message for step in self._steps[: call["cycle"] - 1] for message in step]
        searched, web_unopened = builder.searches_of([one.name for each in added for one in each.tool_calls], context)
        step = builder.Step(
            searched=searched,
            last=call["cycle"] >= context.profile.max_cycles,
            undefined=call["cycle"] > context.profile.max_cycles,
            first=call["cycle"] == 1,
            web_unopened=web_unopened,
            reminders={number: text for number, text in reminders.items() if number < len(added)},
        )
        planned = builder.plan(context, turn.answer.parent, builder.added_messages(turn.answer_id, added), step=step)
        prompt = planned.prompt
        if context.model.provider.append_only and prompt.messages[-1].section == "reminder":
            reminders[len(added)] = prompt.messages[-1].text or ""
        # Of what was sent the report has the entry; so this is for what is planned otherwise, and for nothing changed.
        wanted = varied or self.replayer.variation.empty
        entry = self._cache(context, prompt, step) if wanted else NOTHING
        return Planned(
            call, stored(context, planned, cycle=call["cycle"], refused=None, cache=entry), context, prompt, step
        )

    def _cache(self, context: PastContext, prompt: Prompt, step: builder.Step) -> CacheEntry:
        """What the cache was to serve at that time."""
        call, model, turn = context.call, context.model, self.turn
        asked = builder.fingerprint(context, prompt, step)
        began = turn.started.timestamp() if turn.started is not None else asked.at
        asked = replace(asked, at=call.get("at", began))
        before, other = self.sent.get(model.pk), bool(self.sent)
        if before is None:
            before, earlier = self.replayer.before(turn, model)
            other = other or earlier
        if _answered(turn, call):
            told = call.get("cache", NOTHING)["read"] is not None and self.replayer.variation.model is None
            self.sent[model.pk] = replace(asked, reported=told)
        return cache.expected(asked, before, cache_rule(model), other_model=other)


def _answered(turn: Turn, call: CallReport) -> bool:
    return bool(call["usage"] or turn.report["calls"][-1]["cycle"] > call["cycle"] or turn.status == Turn.Status.DONE)


def steps_of(turn: Turn) -> list[list[Message]]:
    """What each step with tool calls added to the turn, as `llm.agent_loop` hands it on."""
    steps: list[list[Message]] = []
    text = ""
    calls: list[ToolCall] = []
    results: list[Message] = []
    for part in [*turn.answer.parts, {"type": "end"}]:
        if results and part["type"] != "tool_result":
            steps.append([Message("assistant", text, tool_calls=tuple(calls)), *results])
            text, calls, results = "", [], []
        match part["type"]:
            case "text":
                text += part["text"]
            case "tool_call":
                calls.append(ToolCall(part["id"], part["name"], part["arguments"]))
            case "tool_result":
                results.append(Message("tool", part["text"], tool_call_id=part["id"], result=stored_result(part)))
    for state in turn.reasoning.all() if steps else ():
        if state.number <= len(steps):
            asked = steps[state.number - 1]
            asked[0] = replace(asked[0], reasoning=ReasoningState(tuple(state.items), state.tokens))
    return steps


def gone(calls: Sequence[CallReport]) -> list[Problem]:
    """What was in the prompts and has been deleted since."""
    summaries = {call["summary"]["id"] for call in calls if call["summary"]}
    left = (
        {str(pk) for pk in Summary.objects.filter(pk__in=summaries).values_list("pk", flat=True)} if summaries else ()
    )
    lost = [
        Problem("summary_deleted", Sentence("The summary {pk} was deleted.", pk=pk))
        for pk in sorted(summaries.difference(left))
    ]
    sources = (source for call in calls for source in call["sources"] if source["kind"] in FILE_KINDS)
    files = {pk for source in sources if (pk := source.get("id")) and pk != "deleted"}
    here = {str(pk) for pk in File.objects.filter(pk__in=files).values_list("pk", flat=True)} if files else ()
    return [
        *lost,
        *(
            Problem("file_deleted", Sentence("The file {pk} was deleted.", pk=pk))
            for pk in sorted(files.difference(here))
        ),
    ]


def other_texts(call: CallReport) -> list[Problem]:
    """Versions of texts that were deleted, and the product's own words, of which no versions are kept."""
    named = {name for name in call["versions"] if name in TEXTS}
    lost = sorted(named - texts_then(call["versions"]).own.keys())
    found = [
        Problem("text_deleted", Sentence("The version of “{title}” was deleted.", title=TEXTS[name].title))
        for name in lost
    ]
    if made_with(call).get("texts", BUILT_IN_DIGEST) != BUILT_IN_DIGEST:
        sentence = Sentence("Built-in texts of the product are not what they were then.")
        found.append(Problem("built_in_texts_changed", sentence))
    return found


def differences(then: CallReport, now: CallReport) -> list[Problem]:
    """What is not as it was stored, by name; empty where every number is the same."""
    then, now = _as_far_read(then, now), _as_far_read(now, then)
    was, found = Counter(map(_fact, _compared(then))), Counter(map(_fact, _compared(now)))
    before = {fact[:2]: fact for fact in (was - found)}
    after = {fact[:2]: fact for fact in (found - was)}
    problems = [
        Problem(
            f"{name[0]}_changed",
            Sentence(
                "The source {name} is not as it was: {name2} then, {name3} now.",
                name=_named(*name),
                name2=_state(before.get(name)),
                name3=_state(after.get(name)),
            ),
        )
        for name in dict.fromkeys([*before, *after])
    ]
    if len(problems) > NAMED:
        more = Problem(
            "more_changed", Sentence("And {named} more sources are not as they were.", named=len(problems) - NAMED)
        )
        problems = [*problems[:NAMED], more]
    if problems:
        return problems
    one, other = ({name: each[name] for name in NUMBERS} for each in (then, now))  # type: ignore[literal-required]
    unequal = [f"{name} {one[name]} then, {other[name]} now" for name in NUMBERS if one[name] != other[name]]
    return (
        [Problem("numbers_differ", Sentence("Not every number is as it was: {unequal}.", unequal="; ".join(unequal)))]
        if unequal
        else []
    )


def _as_far_read(call: CallReport, other: CallReport) -> CallReport:
    """Rows whose tokens have not been counted yet are read rather than missed, so that a first plan may name as left
    out what later ones only count: those are counted here, too."""
    known = {source.get("id") for source in other["sources"]}
    further = [
        source
        for source in call["sources"]
        if source["state"] == "left_out"
        and source["kind"] in ("message", "file", "image")
        and source["id"] not in known
    ]
    rows = {str(source["id"]).partition("#")[0] for source in further if source["kind"] == "message"}
    if not rows or other["unloaded"] - call["unloaded"] != len(rows):
        return call
    ids = {source["id"] for source in further}
    return {
        **call,
        "sources": [source for source in call["sources"] if source not in further],
        "dropped": [each for each in call["dropped"] if each not in ids],
        "unloaded": other["unloaded"],
    }


def _compared(call: CallReport) -> Iterable[SourceEntry]:
    # Tasks are one section, whose text the report has.
    return (source for source in call["sources"] if source["kind"] != "task")


def _fact(source: SourceEntry) -> tuple[Any, ...]:
    return (source["kind"], *(source.get(name) for name in ("id", "state", "tokens", "reason", "cut_from")))


def _named(kind: str, pk: str | None) -> str:
    return " ".join(filter(None, [kind.replace("_", " "), pk]))


def _state(fact: tuple[Any, ...] | None) -> str:
    if fact is None:
        return "not there"
    state, tokens, reason = fact[2].replace("_", " "), fact[3], fact[4]
    said = f"{state} ({str(reason).replace('_', ' ')})" if reason else state
    return f"{said} with {tokens:,} tokens" if tokens else said


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the calls of one turn or of several: tokens of the prompts with their tools, of them `cached`, which the
    provider's cache is expected to serve; messages and files that were `left_out` of the last prompts; US dollars with
    the answers as long as they were, None without prices."""

    tokens: int = 0
    cached: int = 0
    left_out: int = 0
    calls: int = 0
    cost: Decimal | None = None

    def __add__(self, other: "Figures") -> "Figures":
        costs = [each for each in (self.cost, other.cost) if each is not None]
        return Figures(
            self.tokens + other.tokens,
            self.cached + other.cached,
            self.left_out + other.left_out,
            self.calls + other.calls,
            sum(costs, Decimal(0)) if costs else None,
        )

    def as_json(self) -> dict[str, Any]:
        share = 100 * self.cached // self.tokens if self.tokens else 0
        cost = f"{self.cost:f}" if self.cost is not None else None
        numbers = {name: getattr(self, name) for name in ("tokens", "cached", "left_out", "calls")}
        return {**numbers, "cached_share": share, "cost": cost}

    @classmethod
    def of(cls, calls: Sequence[Planned], *, sent: bool = False) -> "Figures":
        """Of the calls of one turn; `sent`: what was expected of the cache then."""
        if not calls:
            return cls()
        last = calls[-1].report
        total = cls(left_out=len(last["dropped"]) + last["unloaded"])
        for each in calls:
            report, prices = each.report, each.context.model.prices
            cached = (each.stored if sent else report).get("cache", NOTHING)["expected"]
            tokens, answer = report["used"] + report["tools_tokens"], each.stored["usage"].get("output", 0)
            cost = prices.cost(Usage(tokens, answer, cached_input=cached)) if prices is not None else None
            total += cls(tokens, cached, 0, 1, cost)
        return total


def figures(again: Again) -> tuple[Figures, Figures]:
    """Of what was sent, and of what is planned; answers are taken to be as long as they were."""
    return Figures.of(again.past, sent=True), Figures.of(again.planned)
