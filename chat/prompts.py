"""What one model call is sent: the rows' blocks and branch, planned by the context engine.

The turn, the plan before sending, and the reports all come through `plan`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

from django.utils import timezone

from accounts.models import User
from chat.context.build import build
from chat.context.documents import Numbers
from chat.context.moving_parts import DateAwareness, Moment, reminder_text, system_text
from chat.context.report import Prompt
from chat.context.room import Room
from chat.context.types import Block, ContextMessage, ContextRequest
from chat.documents import Documents, project_files
from chat.models import Conversation, RunStep, Summary
from chat.models import Message as MessageRow
from chat.options import NO_OPTIONS, Options
from chat.passages import asked, beside
from chat.sources import messages_of, newest, unsent
from chat.summaries.coverage import in_force, text_of
from chat.tools import LAST_STEP, NO_TOOLS, Toolbox
from files.models import File
from llm import tokens
from llm.messages import Message
from llm.models import Model
from personas.models import BudgetProfile, Persona, SystemPrompt
from personas.services import default_profile, reminders_for
from projects.models import Project
from projects.tasks.block import PromptTasks, render

# The policy `priority` skips what does not fit and goes on, so it wants to see more than fits; but not a whole life.
PRIORITY_READS = 4
RATIO_TRUSTED = 5  # answers from which a learnt ratio replaces the general margin for unknown tokenizers
RESIDUE = Decimal("0.01")  # what a learnt ratio leaves uncertain

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting:
    """What decides, beside the messages: who asks where, who answers, with which model and budget. Read once a turn.

    `summarised`: whether the conversation may have a summary; where it has none, nobody looks for it again.
    """

    user: User
    model: Model
    persona: Persona | None
    profile: BudgetProfile
    system_prompt: SystemPrompt | None
    reminders: Sequence[str]
    asked_at: datetime
    conversation: Conversation | None = None
    project: Project | None = None
    toolbox: Toolbox = NO_TOOLS
    options: Options = NO_OPTIONS
    tasks: PromptTasks | None = None
    run_step: RunStep | None = None
    summarised: bool = True

    @cached_property
    def tokenizer(self) -> tokens.Tokenizer:
        return tokens.tokenizer(self.model.tokenizer or tokens.CATCH_ALL)

    @property
    def exact(self) -> bool:
        return bool(self.model.tokenizer)

    @property
    def room(self) -> Room:
        profile, window = self.profile, min(self.model.window, self.profile.window or self.model.window)
        return Room(
            window,
            reserved_output=min(profile.reserved_output, self.model.max_output or profile.reserved_output),
            buffer=profile.buffer,
            safety_margin=self.margin,
            tools_tokens=self.toolbox.tokens(self.tokenizer) + self.options.format_tokens(self.tokenizer),
        )

    def documents(self) -> Documents:
        """New for each plan, whose reports it collects; numbers go on from the conversation's."""
        known = self.conversation.documents if self.conversation is not None else {}
        return Documents(self.tokenizer, self.model.vision, Numbers(known))

    @property
    def margin(self) -> Decimal:
        """The share of the window kept free because counts may be wrong (context.md, section 3).

        None for an exact tokenizer beyond the profile's own. With the catch-all the profile's margin, until usage has
        taught the model's ratio of reported to counted tokens: then what that ratio says, and a little.
        """
        if self.exact:
            return self.profile.safety_margin
        if self.model.ratio_samples < RATIO_TRUSTED:
            return self.profile.catch_all_margin
        ratio = Decimal(str(max(1.0, self.model.token_ratio)))
        return min(Decimal("0.5"), (1 - 1 / ratio + RESIDUE).quantize(Decimal("0.0001")))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a question is asked: its conversation, if there is one yet, and the project and persona that hold there."""

    conversation: Conversation | None = None
    project: Project | None = None
    persona: Persona | None = None


def place_of(conversation: Conversation) -> Place:
    """A project that its owner has closed to the person counts no more."""
    project = conversation.project
    if project is not None and not Project.objects.visible_to(conversation.owner).filter(pk=project.pk).exists():
        project = None
    return Place(conversation, project, conversation.persona or (project.persona if project else None))


def setting(*, user: User, model: Model, place: Place, asked_at: datetime | None = None) -> Setting:
    persona = place.persona
    profile = persona.budget_profile if persona is not None and persona.budget_profile else default_profile()
    return Setting(
        user=user,
        model=model,
        persona=persona,
        profile=profile,
        system_prompt=SystemPrompt.objects.filter(active=True).first(),
        reminders=reminders_for(persona),
        asked_at=asked_at or timezone.now(),
        conversation=place.conversation,
        project=place.project,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """Which model call of the turn: `searched`: a search tool has run; `last`: no tool may be called any more."""

    searched: bool = False
    last: bool = False
    first: bool = True


FIRST_STEP = Step()


class Planned(NamedTuple):
    """`documents` knows the numbers that the plan has given; a turn keeps them with its conversation.

    `summary` stands in the prompt for everything above it.
    """

    prompt: Prompt
    documents: Documents
    summary: Summary | None = None


def plan(
    setting: Setting,
    leaf: MessageRow | None,
    added: Sequence[ContextMessage] = (),
    files: Sequence[File] = (),
    step: Step = FIRST_STEP,
) -> Planned:
    """The prompt for the branch that ends at `leaf`, with `added` below it: a draft, or what this turn has said so far.

    `files` are those of a draft, which is then the first of `added`. Raises `ContextError`. The number of queries does
    not depend on the length of the conversation.
    """
    documents = setting.documents()
    summary = in_force(leaf.conversation_id, leaf.pk) if leaf and setting.summarised else None
    covered, above = (summary.last_id, summary.last.depth + 1) if summary else (None, 0)
    question = "" if setting.model.tools or setting.project is None else asked(leaf, added)
    frame = _frame(setting, documents, step, question)
    frame = replace(frame, summary=_block(setting, text_of(summary) if summary else ""))
    base = list(documents.reports)
    room, overhead = max(setting.room.input_limit, 1), setting.profile.message_overhead
    read = room * (PRIORITY_READS if setting.profile.policy == BudgetProfile.Policy.PRIORITY else 1)
    while True:
        bounds: Any = {"room": read, "tokenizer": setting.tokenizer, "overhead": overhead, "covered": covered}
        rows = newest(leaf.pk, **bounds) if leaf else []
        documents.reports = [*base, *unsent(rows)]
        messages = documents.attach(messages_of(rows, tokenizer=setting.tokenizer, overhead=overhead))
        messages += [documents.draft(added[0], files), *added[1:]] if added else []
        unloaded = rows[0].depth - above if rows else 0
        prompt = build(replace(frame, messages=messages, unloaded=unloaded, extra_sources=tuple(documents.reports)))
        # Counts that are not stored yet weigh nothing while reading, never too much; so this is rare.
        if not prompt.wants_older or read > PRIORITY_READS * room:
            return Planned(prompt, documents, summary)
        read *= 2


def prompt_tokens(setting: Setting) -> tuple[int, int]:
    """The tokens of the system prompt and of the persona's prompt with the project's instructions, without overhead."""
    system, persona = _prompts(setting)
    return (system.tokens or 0 if system else 0), (persona.tokens or 0 if persona else 0)


def project_room(setting: Setting) -> int:
    """What a project's files may fill a share of: window − reserved output − system prompt − persona prompt."""
    return setting.room.window - setting.room.reserved_output - sum(prompt_tokens(setting))


def _replaces(setting: Setting) -> bool:
    persona = setting.persona
    return bool(persona and persona.replaces_system_prompt and persona.instructions.strip())


def _prompts(setting: Setting, step: Step = FIRST_STEP) -> tuple[Block | None, Block | None]:
    """S and CA. A persona in the system prompt's place leaves the project's instructions alone in CA."""
    persona = setting.persona.instructions.strip() if setting.persona else ""
    project = setting.project.instructions.strip() if setting.project else ""
    base = setting.system_prompt.text if setting.system_prompt else ""
    if _replaces(setting):
        base, persona = persona, ""
    together = "\n\n".join(text for text in (persona, project, setting.options.instructions) if text)
    return _block(setting, system_text(base, _moment(setting, step))), _block(setting, together)


def _frame(setting: Setting, documents: Documents, step: Step, question: str) -> ContextRequest:
    """Everything but the messages."""
    profile = setting.profile
    system, persona = _prompts(setting, step)
    reminders = [*setting.reminders, LAST_STEP] if step.last and setting.toolbox.definitions else setting.reminders
    room = project_room(setting) if setting.project else 0
    files = project_files(setting.project, documents, room=room, profile=profile)
    return ContextRequest(
        room=setting.room,
        messages=(),
        tokenizer=setting.tokenizer,
        policy=profile.policy,
        layout=profile.layout,
        message_overhead=profile.message_overhead,
        omission_note=profile.omission_note,
        system=system,
        tasks=_block(setting, render(setting.tasks)) if setting.tasks else None,
        persona=persona,
        project_files=files.inline,
        file_listing=beside(files, documents, room=room, question=question),
        reminder=_block(setting, reminder_text(reminders, _moment(setting, step)) or ""),
        exact=setting.exact,
        versions=_versions(setting),
    )


def _moment(setting: Setting, step: Step) -> Moment:
    awareness: DateAwareness = "day"
    if setting.persona is not None:
        awareness = setting.persona.date_awareness  # type: ignore[assignment]  # the field's choices are these words
    toolbox, zone = setting.toolbox, setting.user.zone
    return Moment(
        layout=setting.profile.layout,
        asked_at=setting.asked_at.astimezone(zone),
        date_awareness=awareness,
        tools=toolbox.guidance,
        available=frozenset() if step.last else frozenset(toolbox.tools),
        searched=step.searched,
    )


def _versions(setting: Setting) -> dict[str, str]:
    versions = {"system_prompt": str(setting.system_prompt.version)} if setting.system_prompt else {}
    versions |= {"persona": str(setting.persona.version)} if setting.persona else {}
    return versions | ({"project": str(setting.project.version)} if setting.project else {})


def _block(setting: Setting, text: str) -> Block | None:
    return Block(text, setting.tokenizer.count(text)) if text else None


def added_messages(answer_id: object, added: Sequence[Message]) -> list[ContextMessage]:
    """What this turn has said and been told so far, for the next cycle."""
    return [
        ContextMessage(
            f"{answer_id}#{number}", message.role, message.text, tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id,
        )
        for number, message in enumerate(added, 1)
    ]  # fmt: skip


def draft_message(text: str) -> ContextMessage:
    return ContextMessage("draft", "user", text)


def log_trimmed(setting: Setting, prompt: Prompt) -> None:
    """The one line about a trimmed prompt: how many messages, for which model and limit, and the tools' tokens."""
    left_out = len(prompt.report.dropped) + prompt.report.unloaded
    if left_out:
        logger.info(
            "left out %d older messages to fit the context (model: %s, limit: %d tokens, tools: %d tokens)",
            left_out, setting.model.name, prompt.report.limit, setting.room.tools_tokens,
        )  # fmt: skip
