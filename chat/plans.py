"""What the next turn would send, before it is sent: for the composer, programs, and whoever selects documents."""

from typing import Any

from accounts.models import User
from chat import prompts, reports
from chat.context.budget import DocumentBudget, Reserves, document_budget
from chat.context.errors import ContextError
from chat.models import Conversation, Message
from llm.models import Model
from personas.models import Persona
from personas.services import model_for


def plan_ahead(
    *,
    user: User,
    conversation: Conversation | None,
    text: str,
    model: Model | None = None,
    persona: Persona | None = None,
) -> dict[str, Any]:
    """The report of a first model call for the draft `text`: the report's members and `fits`, `error`.

    What does not fit is an answer too: `fits` is false, and `error` says with `code` and `detail` what to do.
    """
    who = conversation.persona if conversation is not None else persona
    setting = prompts.setting(user=user, model=model or model_for(who), persona=who)
    leaf = None
    if conversation is not None and conversation.leaf_id is not None:
        leaf = Message.objects.get(pk=conversation.leaf_id)
    try:
        prompt = prompts.plan(setting, leaf, [prompts.draft_message(text.strip())])
    except ContextError as error:
        limit = max(0, setting.room.input_limit)
        return {"fits": False, "limit": limit, "error": {"code": error.code, "detail": error.detail, **error.extra}}
    call = reports.stored(setting, prompt, cycle=1)
    return {"fits": True, "error": None, **reports.resolved(call, draft=text.strip())}


def budget_for(*, user: User, persona: Persona | None, model: Model | None = None) -> DocumentBudget:
    """How many tokens of documents may be selected with this persona (context.md, section 5)."""
    setting = prompts.setting(user=user, model=model or model_for(persona), persona=persona)
    profile, room = setting.profile, setting.room
    reserves = Reserves(
        reserved_output=room.reserved_output,
        expected_user=profile.expected_user,
        buffer=room.buffer,
        tools_tokens=room.tools_tokens,
        ui_share=profile.ui_share,
        select_margin=profile.select_margin,
    )
    return document_budget(room.window, prompts.prompt_tokens(setting), reserves)
