"""The newest prompt of a conversation with a model, which the provider's cache may hold."""

from typing import Any, ClassVar

from django.db import models

from chat.models.conversation import Conversation


class LastPrompt(models.Model):
    """The fingerprint of the newest prompt that a conversation has sent to a model (`chat.context.cache.SentPrompt`).

    The next plan is compared with it to forecast what the provider's cache will serve. It holds no text of the prompt.

    `window_cap`: the window, in tokens, for which the prompt was planned after the provider had refused a longer prompt
    of this conversation without naming its limit. See `chat.prompts.turn_context.wider_cap`.
    """

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="last_prompts")
    # Without a constraint: a model that is removed while it answers must not keep the answer from being stored.
    model = models.ForeignKey("llm.Model", on_delete=models.CASCADE, related_name="+", db_constraint=False)
    prompt: "models.JSONField[Any, Any]" = models.JSONField()
    window_cap = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "model"], name="one_last_prompt_per_model"),
        ]

    def __str__(self) -> str:
        return f"{self.conversation_id} {self.model_id}"
