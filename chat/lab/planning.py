"""Plan stored turns again, call by call, and compare the plans with the prompts that were sent.

1. `Replayer.turn` plans each call of a turn as it was, and checks that today's rows still give the stored report
   (`differences`). If they do not, no comparison is possible, and it raises `CannotReplan`.
2. It plans each call again with the variation.
3. `sum_figures` sums both up: tokens, cached tokens, messages left out, costs.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

from django.db.models import QuerySet

from chat.context import cache
from chat.context.build import Prompt, SourceEntry
from chat.context.cache import CacheEntry, SentPrompt
from chat.context.types import ContextError
from chat.lab.past import NO_VARIATION, CannotReplan, PastContext, PastContexts, Problem, Variation, stored_settings
from chat.models import Summary, Turn
from chat.prompts import builder
from chat.prompts.history import result_files, stored_result
from chat.prompts.report import FILE_KINDS, CallReport, stored
from core.errors import ProductError
from core.sentences import Sentence
from files.models import File
from llm.models import Model
from llm.services import cache_rule
from llm.types.model_call import ModelMessage, ReasoningState, ToolCall, Usage
from personas.services import texts_from_report
from personas.texts import BUILT_IN_DIGEST, TEXTS

NUMBERS = ("limit", "used", "tools_tokens", "sections", "dropped", "unloaded")
MAX_NAMED_PROBLEMS = 10  # problems listed for a turn; further ones are counted
NO_CACHE: CacheEntry = {
    "expected": 0, "read": None, "written": None, "uncached": None, "missed_section": None, "reason": None,
}  # fmt: skip


def stored_turns() -> QuerySet[Turn]:
    """Return the turns with a complete answer and a report, with the relations that planning them needs."""
    related = ("conversation__owner", "conversation__persona__budget_profile", "user_message", "answer__parent")
    of_run = ("step__run__task", "step__run__item", "step__run__owner")
    rows = Turn.objects.with_answer().exclude(status__in=Turn.LIVE).filter(report__has_key="calls")
    return rows.select_related(*related, *of_run)


class ReplannedCall(NamedTuple):
    """A model call: its `stored` report, and the `report` of its plan under `context`."""

    stored: CallReport
    report: CallReport
    context: PastContext
    prompt: Prompt
    step: builder.CallStep


class ReplannedTurn(NamedTuple):
    """The calls of a turn, as they were and with the variation. In each cycle the last call counts.

    `refused`: the reason why a call does not fit with the variation; then `planned` has the calls before it.
    """

    past: list[ReplannedCall]
    planned: list[ReplannedCall]
    refused: ContextError | None = None


@dataclass
class Replayer:
    """Plans turns again. Pass the turns grouped by conversation and in their order: the cached part of a prompt depends
    on the turn before it, which is planned as well."""

    variation: Variation = NO_VARIATION
    _sent: dict[UUID, dict[UUID, SentPrompt]] = field(default_factory=dict)  # by turn, then by model
    _conversation: UUID | None = None  # the conversation whose turns are in `_sent`

    def turn(self, turn: Turn) -> ReplannedTurn:
        """Plan a turn again. Raises `CannotReplan` if it cannot be planned as it was."""
        if turn.conversation_id != self._conversation:
            self._conversation = turn.conversation_id
            self._sent = {}
        replay = _TurnReplay(turn, self)
        replanned = replay.replan()
        self._sent[turn.pk] = replay.sent
        return replanned

    def before(self, turn: Turn, model: Model) -> tuple[SentPrompt | None, bool]:
        """Return the last prompt of the model in this conversation before the turn, and whether any model got a prompt.

        The prompt is None if there is none, or if it cannot be planned.
        """
        earlier = stored_turns().filter(conversation=turn.conversation_id, finished__lte=turn.started)
        earlier = earlier.exclude(pk=turn.pk).order_by("-finished")
        same_model = earlier if self.variation.model is not None else earlier.filter(answer__model=model)
        newest = same_model.values_list("pk", flat=True).first()
        if newest is None:
            return None, earlier.exists()
        if newest not in self._sent:
            self._sent[newest] = {}  # it stays empty if the turn cannot be planned
            try:
                replay = _TurnReplay(earlier.get(pk=newest), self)
                replay.replan()
                self._sent[newest] = replay.sent
            except ProductError:
                pass
        return self._sent[newest].get(model.pk), True


class _TurnReplay:
    """The replay of one turn. `sent` has the last prompt of each model."""

    def __init__(self, turn: Turn, replayer: Replayer) -> None:
        self.turn = turn
        self.replayer = replayer
        self.sent: dict[UUID, SentPrompt] = {}
        self._contexts = PastContexts(turn, replayer.variation)
        self._steps = restore_steps(turn)
        # For append-only turns; False: as it was, True: with the variation.
        self._reminders: dict[bool, dict[int, str]] = {False: {}, True: {}}

    def replan(self) -> ReplannedTurn:
        """Plan every call as it was and with the variation. Raises `CannotReplan`."""
        calls = list({call["cycle"]: call for call in self.turn.report["calls"]}.values())
        if problems := deleted_sources(calls):
            raise CannotReplan(problems)
        try:
            past = [self._call(self._contexts.then(call)) for call in calls]
        except ContextError as error:
            raise CannotReplan(
                [
                    Problem(
                        "fits_no_more",
                        Sentence("The prompt of that time no longer fits ({code}).", code=error.code),
                    )
                ]
            ) from error
        for each in past:
            if problems := differences(each.stored, each.report):
                raise CannotReplan([*changed_texts(each.stored), *problems])
        if self.replayer.variation.empty:
            return ReplannedTurn(past, past)
        planned: list[ReplannedCall] = []
        for each in past:
            varied = self._contexts.varied(each.context)
            if each.stored["cycle"] > 1 and not varied.toolbox.definitions:
                break  # without tools the model answers in its first call
            try:
                planned.append(self._call(varied))
            except ContextError as error:
                return ReplannedTurn(past, planned, error)
        return ReplannedTurn(past, planned)

    def _call(self, context: PastContext) -> ReplannedCall:
        call = context.call
        turn = self.turn
        varied = context.base is not None
        reminders = self._reminders[varied]
        added = [message for step in self._steps[: call["cycle"] - 1] for message in step]
        searched, web_unopened = builder.searches_of([one.name for each in added for one in each.tool_calls], context)
        step = builder.CallStep(
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
        # The stored report already has the cache entry of the sent prompt. So the entry is only computed for the varied
        # prompt, or without a variation, when the two are the same.
        needs_entry = varied or self.replayer.variation.empty
        entry = self._cache(context, prompt, step) if needs_entry else NO_CACHE
        return ReplannedCall(
            call, stored(context, planned, cycle=call["cycle"], refused=None, cache=entry), context, prompt, step
        )

    def _cache(self, context: PastContext, prompt: Prompt, step: builder.CallStep) -> CacheEntry:
        """Return the part of the prompt that the provider's cache was expected to serve at that time."""
        call = context.call
        model = context.model
        turn = self.turn
        sent = builder.fingerprint(context, prompt, step)
        began = turn.started.timestamp() if turn.started is not None else sent.at
        sent = replace(sent, at=call.get("at", began))
        before = self.sent.get(model.pk)
        other = bool(self.sent)
        if before is None:
            before, earlier = self.replayer.before(turn, model)
            other = other or earlier
        if _was_answered(turn, call):
            reported = call.get("cache", NO_CACHE)["read"] is not None and self.replayer.variation.model is None
            self.sent[model.pk] = replace(sent, reported=reported)
        return cache.forecast(sent, before, cache_rule(model), other_model=other)


def _was_answered(turn: Turn, call: CallReport) -> bool:
    return bool(call["usage"] or turn.report["calls"][-1]["cycle"] > call["cycle"] or turn.status == Turn.Status.DONE)


def restore_steps(turn: Turn) -> list[list[ModelMessage]]:
    """Return the messages that each step with tool calls added to the turn, as `llm.agent_loop` sends them."""
    steps: list[list[ModelMessage]] = []
    text = ""
    calls: list[ToolCall] = []
    results: list[ModelMessage] = []
    for part in [*turn.answer.parts, {"type": "end"}]:
        if results and part["type"] != "tool_result":
            steps.append([ModelMessage("assistant", text, tool_calls=tuple(calls)), *results])
            text = ""
            calls = []
            results = []
        match part["type"]:
            case "text":
                text += part["text"]
            case "tool_call":
                calls.append(ToolCall(part["id"], part["name"], part["arguments"]))
            case "tool_result":
                results.append(
                    ModelMessage(
                        "tool",
                        part["text"],
                        tool_call_id=part["id"],
                        result=stored_result(part),
                        files=result_files(part),
                    )
                )
    for state in turn.reasoning.all() if steps else ():
        if state.number <= len(steps):
            step = steps[state.number - 1]
            step[0] = replace(step[0], reasoning=ReasoningState(tuple(state.items), state.tokens))
    return steps


def deleted_sources(calls: Sequence[CallReport]) -> list[Problem]:
    """Return a problem for each summary and file of the prompts that has been deleted."""
    summaries = {call["summary"]["id"] for call in calls if call["summary"]}
    remaining_summaries = (
        {str(pk) for pk in Summary.objects.filter(pk__in=summaries).values_list("pk", flat=True)} if summaries else ()
    )
    problems = [
        Problem("summary_deleted", Sentence("The summary {pk} was deleted.", pk=pk))
        for pk in sorted(summaries.difference(remaining_summaries))
    ]
    sources = (source for call in calls for source in call["sources"] if source["kind"] in FILE_KINDS)
    files = {pk for source in sources if (pk := source.get("id")) and pk != "deleted"}
    remaining_files = (
        {str(pk) for pk in File.objects.filter(pk__in=files).values_list("pk", flat=True)} if files else ()
    )
    return [
        *problems,
        *(
            Problem("file_deleted", Sentence("The file {pk} was deleted.", pk=pk))
            for pk in sorted(files.difference(remaining_files))
        ),
    ]


def changed_texts(call: CallReport) -> list[Problem]:
    """Return a problem for each deleted version of a text, and another if the built-in texts have changed."""
    names = {name for name in call["versions"] if name in TEXTS}
    deleted = sorted(names - texts_from_report(call["versions"]).own.keys())
    problems = [
        Problem("text_deleted", Sentence("The version of “{title}” was deleted.", title=TEXTS[name].title))
        for name in deleted
    ]
    if stored_settings(call).get("texts", BUILT_IN_DIGEST) != BUILT_IN_DIGEST:
        sentence = Sentence("Built-in texts of the product have changed since then.")
        problems.append(Problem("built_in_texts_changed", sentence))
    return problems


def differences(then: CallReport, now: CallReport) -> list[Problem]:
    """Return a problem for each source that differs from the stored report; no problems if every number is equal."""
    then, now = _with_same_rows_read(then, now), _with_same_rows_read(now, then)
    sent = Counter(map(_fact, _comparable_sources(then)))
    planned = Counter(map(_fact, _comparable_sources(now)))
    sent_facts = {fact[:2]: fact for fact in (sent - planned)}
    planned_facts = {fact[:2]: fact for fact in (planned - sent)}
    problems = [
        Problem(
            f"{name[0]}_changed",
            Sentence(
                "The source {name} differs: {name2} then, {name3} now.",
                name=_named(*name),
                name2=_state(sent_facts.get(name)),
                name3=_state(planned_facts.get(name)),
            ),
        )
        for name in dict.fromkeys([*sent_facts, *planned_facts])
    ]
    if len(problems) > MAX_NAMED_PROBLEMS:
        more = Problem(
            "more_changed",
            Sentence("{named} more sources differ.", named=len(problems) - MAX_NAMED_PROBLEMS),
        )
        problems = [*problems[:MAX_NAMED_PROBLEMS], more]
    if problems:
        return problems
    # mypy follows no names of members in a variable.
    stored_numbers, planned_numbers = ({name: each[name] for name in NUMBERS} for each in (then, now))  # type: ignore[literal-required]
    unequal = [
        f"{name} {stored_numbers[name]} then, {planned_numbers[name]} now"
        for name in NUMBERS
        if stored_numbers[name] != planned_numbers[name]
    ]
    return (
        [Problem("numbers_differ", Sentence("Numbers differ: {unequal}.", unequal="; ".join(unequal)))]
        if unequal
        else []
    )


def _with_same_rows_read(call: CallReport, other: CallReport) -> CallReport:
    """Return the report as if its plan had loaded as few rows as the plan of `other`.

    A plan loads the rows whose tokens are not counted yet. So a first plan may list sources as left out that a later
    plan only counts as `unloaded`. This function counts them as `unloaded`, too.
    """
    named = {source.get("id") for source in other["sources"]}
    further = [
        source
        for source in call["sources"]
        if source["state"] == "left_out"
        and source["kind"] in ("message", "file", "image")
        and source["id"] not in named
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


def _comparable_sources(call: CallReport) -> Iterable[SourceEntry]:
    # The tasks are compared as one section, whose text the report has.
    return (source for source in call["sources"] if source["kind"] != "task")


def _fact(source: SourceEntry) -> tuple[Any, ...]:
    return (source["kind"], *(source.get(name) for name in ("id", "state", "tokens", "reason", "cut_from")))


def _named(kind: str, pk: str | None) -> str:
    return " ".join(filter(None, [kind.replace("_", " "), pk]))


def _state(fact: tuple[Any, ...] | None) -> str:
    if fact is None:
        return "not there"
    _, _, state, tokens, reason, _ = fact
    words = str(state).replace("_", " ")
    if reason:
        words = f"{words} ({str(reason).replace('_', ' ')})"
    return f"{words} with {tokens:,} tokens" if tokens else words


class FiguresJson(TypedDict):
    """`PromptFigures` as stored JSON. `cached_share` is in percent; `cost` is US dollars as text."""

    tokens: int
    cached: int
    left_out: int
    calls: int
    cached_share: int
    cost: str | None


@dataclass(frozen=True, slots=True)
class PromptFigures:
    """Sums over the calls of one turn or of several.

    `tokens` counts the prompts with their tools. The provider's cache is expected to serve `cached` of these tokens.
    `left_out` counts messages and files that the last prompt of each turn lacks. `cost` is in US dollars, for answers
    of the stored length; None without prices.
    """

    tokens: int = 0
    cached: int = 0
    left_out: int = 0
    calls: int = 0
    cost: Decimal | None = None

    def __add__(self, other: "PromptFigures") -> "PromptFigures":
        costs = [each for each in (self.cost, other.cost) if each is not None]
        return PromptFigures(
            self.tokens + other.tokens,
            self.cached + other.cached,
            self.left_out + other.left_out,
            self.calls + other.calls,
            sum(costs, Decimal(0)) if costs else None,
        )

    def as_json(self) -> FiguresJson:
        return {
            "tokens": self.tokens,
            "cached": self.cached,
            "left_out": self.left_out,
            "calls": self.calls,
            "cached_share": 100 * self.cached // self.tokens if self.tokens else 0,
            "cost": f"{self.cost:f}" if self.cost is not None else None,
        }

    @classmethod
    def of(cls, calls: Sequence[ReplannedCall], *, sent: bool = False) -> "PromptFigures":
        """Sum up the calls of one turn. With `sent`, `cached` is the number that the stored report expected."""
        if not calls:
            return cls()
        last = calls[-1].report
        total = cls(left_out=len(last["dropped"]) + last["unloaded"])
        for each in calls:
            report = each.report
            prices = each.context.model.prices
            cached = (each.stored if sent else report).get("cache", NO_CACHE)["expected"]
            tokens = report["used"] + report["tools_tokens"]
            answer = each.stored["usage"].get("output", 0)
            cost = prices.cost(Usage(tokens, answer, cached_input=cached)) if prices is not None else None
            total += cls(tokens, cached, 0, 1, cost)
        return total


def sum_figures(turn: ReplannedTurn) -> tuple[PromptFigures, PromptFigures]:
    """Return the figures of the sent prompts, and of the planned prompts."""
    return PromptFigures.of(turn.past, sent=True), PromptFigures.of(turn.planned)
