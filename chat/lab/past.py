"""What a stored model call was made under, put together again, and the same with one thing changed.

What a variation does not touch stays as it was sent: the texts of the sections are those of the report, the room and
the documents' numbers are stored with it, profile and model are put back to what they were (`made_with`). A section
that it does touch is made of today's rows, once with the variation and once without. Where they, without it, no longer
give what was sent, nobody can know what it would have made of that: then this is said, and no number is given.
"""

from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

from chat.context.rendering import Numbers
from chat.context.types import Block, ContextRequest, Room, Section
from chat.models import Message, Summary, Turn
from chat.models.summary import Marks
from chat.prompts.history import Documents
from chat.prompts.report import CallReport
from chat.prompts.turn_context import ChosenEffort, TurnContext, context_of_past_turn
from chat.tools.toolbox import Toolbox, with_external_tools, with_known_tools, within_limit
from core.errors import ProductError
from core.sentences import Sentence
from llm.models import Model
from personas.models import BudgetProfile, SystemPrompt
from personas.services import texts_then
from projects.models import ProjectFile
from workspace.models import Workspace

SHARES = ("safety_margin", "catch_all_margin", "project_share")
SECTIONS = {  # one text each, which the report has
    "system": "The system prompt with the guidance for its tools",
    "tasks": "The list of tasks",
    "summary": "The summary",
    "persona": "The persona's prompt with the project's instructions",
    "reminder": "The reminder",
}


class Problem(NamedTuple):
    """Why a stored turn is not planned: a code and a sentence, in which nothing stands that a person wrote."""

    code: str
    detail: Sentence


class Changed(ProductError):
    """What was sent cannot be planned as it was: something it was made of is gone, or not what it was."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = problems
        super().__init__(*problems[0], status=409)


@dataclass(frozen=True, slots=True)
class Variation:
    """What is otherwise than it was; None and empty: as it was. `layout` and `policy` go before those of `profile`."""

    model: Model | None = None
    profile: BudgetProfile | None = None
    layout: str = ""
    policy: str = ""
    prompt: SystemPrompt | None = None

    @property
    def empty(self) -> bool:
        return self == AS_IT_WAS


AS_IT_WAS = Variation()


@dataclass(frozen=True)
class PastContext(TurnContext):
    """What the `call` of a stored turn was made under; where `base` is given, which is that, with a variation.

    `sections`: their texts as today's rows give them, by name and variant. `anew`: the room is that of its own model
    and profile.
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
        margin = Decimal(made_with(call).get("margin") or str(call["margin"]))
        return Room(call["window"], call["reserved_output"], call["buffer"], margin, call["tools_tokens"])

    @cached_property
    def effort(self) -> ChosenEffort:
        return super().effort if self.anew else ChosenEffort(self.call.get("effort", ""))

    @cached_property
    def _tools_tokens(self) -> int:
        """Of the same tools by the same tokenizer what was stored, whatever has become of them since."""
        then = self.base
        if then is not None and then.model.tools and self.model.tools:
            if then.tokenizer.name == self.tokenizer.name:
                return self.call["tools_tokens"]
            lost = set(self.call.get("tools", ())) - {tool.name for tool in self.toolbox.definitions}
            if lost:
                detail = Sentence(
                    "Tools that were offered are not there any more: {lost}.", lost=", ".join(sorted(lost))
                )
                raise Changed([Problem("tools_changed", detail)])
        return self.toolbox.tokens(self.tokenizer) + self.options.format_tokens(self.tokenizer)

    def documents(self) -> Documents:
        return Documents(self.tokenizer, self.model.vision, Numbers(self.call.get("numbers", {})), self.texts)

    def summary_above(self, leaf: Message, marks: Marks) -> Summary | None:
        covered = self.call["summary"]
        return Summary.objects.select_related("last").get(pk=covered["id"]) if covered else None

    def project_entries(self) -> list[ProjectFile]:
        """What was added to the project since is none of this turn's."""
        then = {source.get("id") for source in self.call["sources"] if source["kind"] == "project_file"}
        return [entry for entry in super().project_entries() if str(entry.file_id) in then]

    def completed(
        self, frame: ContextRequest, sections: Collection[Section] | None = None, variant: str = ""
    ) -> ContextRequest:
        blocks: dict[str, Any] = {}
        for name in SECTIONS if sections is None else sections:
            block: Block | None = getattr(frame, name)
            text = self._kept(name, block.text if block is not None else None, variant)
            blocks[name] = Block(text, self.tokenizer.count(text)) if text else None
        return replace(frame, **blocks)

    def _kept(self, name: str, text: str | None, variant: str) -> str | None:
        key = f"{name} {variant}"
        self.sections[key] = text
        if self.base is None:
            return self._sent(name, text)
        if key not in self.base.sections:
            return text  # the turn had no such text
        plain = self.base.sections[key]
        then = self._sent(name, plain)
        if text == plain:
            return then
        if then not in [each for other, each in self.base.sections.items() if other.startswith(f"{name} ")]:
            raise Changed(
                [
                    Problem(
                        f"{name}_changed",
                        Sentence("{name} cannot be made any more as it was then.", name=Sentence(SECTIONS[name])),
                    )
                ]
            )
        return text

    def _sent(self, name: str, now: str | None) -> str | None:
        """The text of that time. Of one that was cut only its size is known, which is compared with the rest."""
        states = [source["state"] for source in self.call["sources"] if source["kind"] == name]
        if not states:
            return None
        texts = [each.get("text") for each in self.call["messages"] if each["section"] == name]
        return texts[-1] if states[0] == "full" and texts else now


class Contexts:
    """Those of the calls of one turn."""

    def __init__(self, turn: Turn, variation: Variation) -> None:
        self._turn, self._variation = turn, variation
        self._today: dict[Any, TurnContext] = {}  # by model

    def then(self, call: CallReport) -> PastContext:
        """With what was the call's own put back."""
        context = self._of(model_of(self._turn, call), call)
        version, ratio = call["versions"].get("system_prompt"), made_with(call).get("true_ratio")
        return _past(
            context,
            call,
            profile=_profile_of(call),
            system_prompt=SystemPrompt.objects.filter(version=version).first() if version else None,
            toolbox=_only(context.toolbox, call.get("tools", ())),
            true_ratio=Decimal(ratio) if ratio else None,
            texts=texts_then(call["versions"]),
        )

    def varied(self, then: PastContext) -> PastContext:
        """The same with the variation, after `then` was planned with."""
        change = self._variation
        profile = copy(change.profile or then.profile)
        profile.layout, profile.policy = change.layout or profile.layout, change.policy or profile.policy
        changes: dict[str, Any] = {"profile": profile, "system_prompt": change.prompt or then.system_prompt}
        if change.model is not None:
            offered = self._of(change.model, then.call).toolbox
            tools = _only(offered, then.call.get("tools", ())) if then.model.tools else offered
            changes |= {"model": change.model, "toolbox": tools, "true_ratio": None}
        anew = change.model is not None or change.profile is not None
        return _past(then, then.call, **changes, base=then, anew=anew)

    def _of(self, model: Model, call: CallReport) -> TurnContext:
        """Of today's rows, under the workspace's settings of that time. No tool server is asked: their last lists
        count."""
        if model.pk not in self._today:
            workspace = Workspace(**made_with(call).get("workspace", {}))
            context = context_of_past_turn(self._turn, model, workspace=workspace)
            box = with_known_tools(context.toolbox, context.persona, model, context.rights)
            offered = context.options.tools if context.options.tool_choice != "none" else ()
            box = within_limit(with_external_tools(box, offered), context.persona, model)
            self._today[model.pk] = replace(context, toolbox=box)
        return self._today[model.pk]


def _past(context: TurnContext, call: CallReport, **changes: Any) -> PastContext:
    same = {each.name: getattr(context, each.name) for each in fields(TurnContext)}
    return PastContext(**{**same, **changes}, call=call)


def made_with(call: CallReport) -> dict[str, Any]:
    """Empty in reports of earlier versions: then today's rows have to do, and what differs is found."""
    return call.get("made_with", {})


def model_of(turn: Turn, call: CallReport) -> Model:
    """The row that was asked, as it was. Raises `Changed` where it is gone."""
    pk = call.get("model_id") or str(turn.model_id)
    row = Model.objects.select_related("provider").filter(pk=pk).first() if pk != "None" else None
    if row is None:
        raise Changed([Problem("model_deleted", Sentence("The model {call} was deleted.", call=call["model"]))])
    stored = dict(made_with(call).get("model", {}))
    if stored:
        row.context_window, row.learnt_window = stored.pop("window"), None
        row.learnt_max_images = None
    for name, value in stored.items():
        setattr(row, name, value)
    return row


def _profile_of(call: CallReport) -> BudgetProfile:
    row = BudgetProfile.objects.filter(name=call["profile"]).first() or BudgetProfile(name=call["profile"])
    row.policy, row.layout = call["policy"], call["layout"]
    for name, value in made_with(call).get("profile", {}).items():
        setattr(row, name, Decimal(value) if name in SHARES else value)
    return row


def _only(box: Toolbox, names: Collection[str]) -> Toolbox:
    return replace(
        box,
        tools={name: tool for name, tool in box.tools.items() if name in names},
        guidance=tuple(each for each in box.guidance if each.name in names),
        external=tuple(each for each in box.external if each.name in names),
    )
