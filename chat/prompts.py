"""What one model call is sent: the rows' blocks and branch, planned by the context engine.

The turn, the plan before sending, and the reports all come through `plan`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from zoneinfo import ZoneInfo

from django.utils import timezone

from accounts.models import User
from chat.context.build import build
from chat.context.moving_parts import DateAwareness, Moment, reminder_text, system_text
from chat.context.report import Prompt
from chat.context.room import Room
from chat.context.types import Block, ContextMessage, ContextRequest, PromptMessage
from chat.models import Message as MessageRow
from chat.sources import messages_of, newest
from llm import tokens
from llm.messages import Message, ModelRequest
from llm.models import Model
from personas.models import BudgetProfile, Persona, SystemPrompt
from personas.services import default_profile, reminders_for

# The policy `priority` skips what does not fit and goes on, so it wants to see more than fits; but not a whole life.
PRIORITY_READS = 4
RATIO_TRUSTED = 5  # answers from which a learnt ratio replaces the general margin for unknown tokenizers
RESIDUE = Decimal("0.01")  # what a learnt ratio leaves uncertain

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting:
    """What decides, beside the messages: who asks, who answers, with which model and budget. Read once a turn."""

    user: User
    model: Model
    persona: Persona | None
    profile: BudgetProfile
    system_prompt: SystemPrompt | None
    reminders: Sequence[str]
    asked_at: datetime

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
        )

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


def setting(*, user: User, model: Model, persona: Persona | None, asked_at: datetime | None = None) -> Setting:
    profile = persona.budget_profile if persona is not None and persona.budget_profile else default_profile()
    return Setting(
        user=user,
        model=model,
        persona=persona,
        profile=profile,
        system_prompt=SystemPrompt.objects.filter(active=True).first(),
        reminders=reminders_for(persona),
        asked_at=asked_at or timezone.now(),
    )


def plan(setting: Setting, leaf: MessageRow | None, added: Sequence[ContextMessage] = ()) -> Prompt:
    """The prompt for the branch that ends at `leaf`, with `added` below it: a draft, or what this turn has said so far.

    Raises `ContextError`. The number of queries does not depend on the length of the conversation.
    """
    room, overhead = max(setting.room.input_limit, 1), setting.profile.message_overhead
    read = room * (PRIORITY_READS if setting.profile.policy == BudgetProfile.Policy.PRIORITY else 1)
    while True:
        rows = newest(leaf.pk, room=read, tokenizer=setting.tokenizer, overhead=overhead) if leaf else []
        messages = [*messages_of(rows, tokenizer=setting.tokenizer, overhead=overhead), *added]
        prompt = build(_request(setting, messages, unloaded=rows[0].depth if rows else 0))
        # Counts that are not stored yet weigh nothing while reading, never too much; so this is rare.
        if not prompt.wants_older or read > PRIORITY_READS * room:
            return prompt
        read *= 2


def prompt_tokens(setting: Setting) -> tuple[int, int]:
    """The tokens of the system prompt and of the persona's prompt, without overhead."""
    request = _request(setting, (), unloaded=0)
    blocks = (request.system, request.persona)
    system, persona = (block.tokens or 0 if block else 0 for block in blocks)
    return system, persona


def _request(setting: Setting, messages: Sequence[ContextMessage], unloaded: int) -> ContextRequest:
    profile, persona = setting.profile, setting.persona
    replaces = bool(persona and persona.replaces_system_prompt and persona.instructions.strip())
    moment = _moment(setting)
    base = setting.system_prompt.text if setting.system_prompt and not replaces else ""
    instructions = persona.instructions.strip() if persona else ""
    system = system_text("" if replaces else base, moment)
    return ContextRequest(
        room=setting.room,
        messages=messages,
        tokenizer=setting.tokenizer,
        policy=profile.policy,
        layout=profile.layout,
        message_overhead=profile.message_overhead,
        omission_note=profile.omission_note,
        system=_block(setting, system) if not replaces else None,
        persona=_block(setting, system_text(instructions, moment) if replaces else instructions),
        persona_replaces_system=replaces,
        reminder=_block(setting, reminder_text(setting.reminders, moment) or ""),
        unloaded=unloaded,
        exact=setting.exact,
        versions=_versions(setting),
    )


def _moment(setting: Setting) -> Moment:
    awareness: DateAwareness = "day"
    if setting.persona is not None:
        awareness = setting.persona.date_awareness  # type: ignore[assignment]  # the field's choices are these words
    zone: ZoneInfo = setting.user.zone
    return Moment(setting.profile.layout, setting.asked_at.astimezone(zone), awareness)


def _versions(setting: Setting) -> dict[str, str]:
    versions = {"system_prompt": str(setting.system_prompt.version)} if setting.system_prompt else {}
    return versions | ({"persona": str(setting.persona.version)} if setting.persona else {})


def _block(setting: Setting, text: str) -> Block | None:
    return Block(text, setting.tokenizer.count(text)) if text else None


def model_request(setting: Setting, prompt: Prompt) -> ModelRequest:
    model = setting.model
    left = setting.room.window - prompt.report.used
    return ModelRequest(
        model=model.name,
        messages=tuple(_wire(message) for message in prompt.messages),
        max_output=min(model.max_output, left) if model.max_output else None,
        several_system_messages=model.several_system_messages,
    )


def _wire(message: PromptMessage) -> Message:
    return Message(message.role, message.text or "", (), message.tool_calls, message.tool_call_id)


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


def narrowed(setting: Setting, window: int) -> Setting:
    """The same with a smaller window, after the provider has refused a prompt."""
    smaller = Model.objects.select_related("provider").get(pk=setting.model.pk)
    smaller.learnt_window = window
    return replace(setting, model=smaller)
