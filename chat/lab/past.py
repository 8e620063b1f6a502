"""Restore the context of a stored model call, and make the same context with a setting changed.

1. `PastContexts.then` restores the context of a call. The report has the texts of sections, the room and the document
   numbers. Profile and model get the values they had at the time of the call (`stored_settings`).
2. `PastContexts.varied` applies the variation. A section that it affects is built from today's rows, once with the
   variation and once without.
3. If today's rows without the variation no longer give the text that was sent, the effect of the variation is unknown.
   Then `CannotReplan` names the reason, and no number is given.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from chat.context.memory import ChosenMemory
from chat.context.rendering import CitationNumbers
from chat.context.types import Block, ContextRequest, Room, Section
from chat.lab.models import Replay
from chat.models import Message, Summary, Turn
from chat.models.summary import Marks
from chat.prompts.history import Documents
from chat.prompts.report import CallReport, memory_then
from chat.prompts.turn_context import ChosenEffort, TurnContext, context_of_past_turn, with_expected_tools
from chat.tools.toolbox import Toolbox
from core.errors import ProductError
from core.sentences import Sentence
from llm.models import Model
from personas.models import BudgetProfile, SystemPrompt
from personas.services import texts_from_report
from projects.models import ProjectFile
from workspace.models import Workspace

SHARES = ("safety_margin", "catch_all_margin", "project_share", "tool_share")
SECTIONS = {  # sections of one text each, which the report stores
    "system": "The system prompt with the guidance for its tools",
    "tasks": "The list of tasks",
    "summary": "The summary",
    "persona": "The persona's prompt with the project's instructions",
    "reminder": "The reminder",
}


class Problem(NamedTuple):
    """The reason why a stored turn cannot be planned again: a code, and a sentence that quotes no text of a user."""

    code: str
    detail: Sentence


class CannotReplan(ProductError):
    """The prompt that was sent cannot be planned again, since one of its sources was deleted or has changed."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = problems
        super().__init__(*problems[0], status=409)


@dataclass(frozen=True, slots=True)
class Variation:
    """The settings to change; None or an empty text keeps the turn's.

    The texts are values of the fields of `chat.lab.models.Replay` with these names. They override `profile`.
    """

    model: Model | None = None
    profile: BudgetProfile | None = None
    layout: str = ""
    policy: str = ""
    note_form: str = ""
    reminder_place: str = ""
    citation_reminder: str = ""
    prompt: SystemPrompt | None = None

    @property
    def empty(self) -> bool:
        return self == NO_VARIATION

    def applied_to(self, profile: BudgetProfile) -> BudgetProfile:
        """Return the changed profile, else a copy of this one, with the texts of the variation. It is not stored."""
        varied = copy(self.profile or profile)
        varied.layout = self.layout or varied.layout
        varied.policy = self.policy or varied.policy
        varied.note_form = self.note_form or varied.note_form
        varied.reminder_place = self.reminder_place or varied.reminder_place
        if self.citation_reminder:
            varied.always_remind_citations = self.citation_reminder == Replay.CitationReminder.ALWAYS
        return varied


NO_VARIATION = Variation()


@dataclass(frozen=True)
class PastContext(TurnContext):
    """The context of a stored turn's `call`, as it was or with a variation.

    `base`: for a context with a variation, the context as it was. `sections`: the texts built from today's rows, by
    name and variant. `anew`: the room comes from this context's model and profile, not from the stored call.
    """

    call: CallReport = field(kw_only=True)
    base: "PastContext | None" = None
    anew: bool = False
    sections: dict[str, str | None] = field(default_factory=dict)

    @property
    def room(self) -> Room:
        call = self.call
        if self.anew:
            return replace(super().room, tools_tokens=self._tools_tokens)
        margin = Decimal(stored_settings(call).get("margin") or str(call["margin"]))
        return Room(call["window"], call["reserved_output"], call["buffer"], margin, call["tools_tokens"])

    @cached_property
    def effort(self) -> ChosenEffort:
        return super().effort if self.anew else ChosenEffort(self.call.get("effort", ""))

    @cached_property
    def _tools_tokens(self) -> int:
        """Return the tokens of the tools: the stored number if the tokenizer is the same, otherwise a new count.

        Raises `CannotReplan` if a tool that must be counted no longer exists.
        """
        base = self.base
        if base is not None and base.model.tools and self.model.tools:
            if base.tokenizer.name == self.tokenizer.name:
                return self.call["tools_tokens"]
            lost = set(self.call.get("tools", ())) - {tool.name for tool in self.toolbox.definitions}
            if lost:
                detail = Sentence(
                    "Tools that the model could call no longer exist: {lost}.", lost=", ".join(sorted(lost))
                )
                raise CannotReplan([Problem("tools_changed", detail)])
        return self.toolbox.tokens(self.tokenizer) + self.options.format_tokens(self.tokenizer)

    def documents(self) -> Documents:
        return Documents(self.tokenizer, self.model.vision, CitationNumbers(self.call.get("numbers", {})), self.texts)

    def summary_above(self, leaf: Message, marks: Marks) -> Summary | None:
        covered = self.call["summary"]
        return Summary.objects.select_related("last").get(pk=covered["id"]) if covered else None

    def chosen_memory(self, summary: Summary | None) -> ChosenMemory | None:
        """Return the memory section as it was sent. Facts without room are not planned again."""
        memory = memory_then(self.call)
        return ChosenMemory(memory, (), ()) if memory is not None else None

    def project_entries(self) -> list[ProjectFile]:
        """Return the entries without files that were added to the project after the call."""
        sent_ids = {source.get("id") for source in self.call["sources"] if source["kind"] == "project_file"}
        return [entry for entry in super().project_entries() if str(entry.file_id) in sent_ids]

    def completed(
        self, frame: ContextRequest, sections: Collection[Section] | None = None, variant: str = ""
    ) -> ContextRequest:
        blocks: dict[str, Any] = {}  # fields of the frame
        for name in SECTIONS if sections is None else sections:
            block: Block | None = getattr(frame, name)
            text = self._section_text(name, block.text if block is not None else None, variant)
            blocks[name] = Block(text, self.tokenizer.count(text)) if text else None
        return replace(frame, **blocks)

    def _section_text(self, name: str, text: str | None, variant: str) -> str | None:
        key = f"{name} {variant}"
        self.sections[key] = text
        if self.base is None:
            return self._sent_text(name, text)
        if key not in self.base.sections:
            return text  # the turn had no such text
        unvaried = self.base.sections[key]
        sent = self._sent_text(name, unvaried)
        if text == unvaried:
            return sent
        if sent not in [each for other, each in self.base.sections.items() if other.startswith(f"{name} ")]:
            raise CannotReplan(
                [
                    Problem(
                        f"{name}_changed",
                        Sentence("{name} can no longer be built as it was.", name=Sentence(SECTIONS[name])),
                    )
                ]
            )
        return text

    def _sent_text(self, name: str, now: str | None) -> str | None:
        """Return the text that was sent; `now` for a text that was cut, since only its size is stored."""
        states = [source["state"] for source in self.call["sources"] if source["kind"] == name]
        if not states:
            return None
        texts = [each.get("text") for each in self.call["messages"] if each["section"] == name]
        return texts[-1] if states[0] == "full" and texts else now


class PastContexts:
    """The contexts of the calls of one turn."""

    def __init__(self, turn: Turn, variation: Variation) -> None:
        self._turn = turn
        self._variation = variation
        self._today: dict[UUID, TurnContext] = {}  # by model id

    def then(self, call: CallReport) -> PastContext:
        """Return the context of a call as it was."""
        context = self._todays_context(restore_model(self._turn, call), call)
        version = call["versions"].get("system_prompt")
        ratio = stored_settings(call).get("true_ratio")
        return _past(
            context,
            call,
            profile=_restore_profile(call),
            system_prompt=SystemPrompt.objects.filter(version=version).first() if version else None,
            toolbox=_filter_tools(context.toolbox, call.get("tools", ())),
            true_ratio=Decimal(ratio) if ratio else None,
            texts=texts_from_report(call["versions"]),
        )

    def varied(self, then: PastContext) -> PastContext:
        """Return the context with the variation. A plan must have used `then` before, which fills its `sections`."""
        change = self._variation
        varied = replace(
            then,
            profile=change.applied_to(then.profile),
            system_prompt=change.prompt or then.system_prompt,
            base=then,
            anew=change.model is not None or change.profile is not None,
            sections={},
        )
        if change.model is None:
            return varied
        offered = self._todays_context(change.model, then.call).toolbox
        toolbox = _filter_tools(offered, then.call.get("tools", ())) if then.model.tools else offered
        return replace(varied, model=change.model, toolbox=toolbox, true_ratio=None)

    def _todays_context(self, model: Model, call: CallReport) -> TurnContext:
        """Return the context from today's rows and the workspace's settings at the time of the call.

        No tool server is queried: the last known list of each is used.
        """
        if model.pk not in self._today:
            workspace = Workspace(**stored_settings(call).get("workspace", {}))
            context = context_of_past_turn(self._turn, model, workspace=workspace)
            self._today[model.pk] = with_expected_tools(context)
        return self._today[model.pk]


def _past(context: TurnContext, call: CallReport, **changes: Any) -> PastContext:
    same = {each.name: getattr(context, each.name) for each in fields(TurnContext)}
    return PastContext(**{**same, **changes}, call=call)


def stored_settings(call: CallReport) -> Mapping[str, Any]:
    """Return the settings that are stored with a call; empty in reports of earlier versions.

    Without them today's rows are used, and `differences` finds the changes.
    """
    return call.get("made_with", {})


def restore_model(turn: Turn, call: CallReport) -> Model:
    """Return the model of the call with its settings of that time. Raises `CannotReplan` if it was deleted."""
    pk = call.get("model_id") or str(turn.model_id)
    row = Model.objects.select_related("provider").filter(pk=pk).first() if pk != "None" else None
    if row is None:
        raise CannotReplan([Problem("model_deleted", Sentence("The model {call} was deleted.", call=call["model"]))])
    stored = dict(stored_settings(call).get("model", {}))
    if stored:
        row.context_window = stored.pop("window")
        row.learnt_window = row.learnt_max_images = None
    _restore(row, stored)
    return row


def _restore_profile(call: CallReport) -> BudgetProfile:
    row = BudgetProfile.objects.filter(name=call["profile"]).first() or BudgetProfile(name=call["profile"])
    row.policy = call["policy"]
    row.layout = call["layout"]
    values = stored_settings(call).get("profile", {})
    _restore(row, {name: Decimal(value) if name in SHARES else value for name, value in values.items()})
    return row


def _restore(row: Model | BudgetProfile, values: Mapping[str, object]) -> None:
    """Set stored values on a row without saving it."""
    for name, value in values.items():
        setattr(row, name, value)


def _filter_tools(box: Toolbox, names: Collection[str]) -> Toolbox:
    """Return the box with the tools whose definitions were sent, in their order. The system prompt's list is stored."""
    return replace(
        box,
        tools={name: box.tools[name] for name in names if name in box.tools},
        on_demand=None,
        guidance=tuple(each for each in box.guidance if each.name in names),
        external=tuple(each for each in box.external if each.name in names),
    )
