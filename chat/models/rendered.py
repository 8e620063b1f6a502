"""Answers as HTML, so that no page has to make it again."""

from typing import ClassVar

from django.db import models


class RenderedAnswer(models.Model):
    """The HTML of a complete answer in one language; `chat.rendering.kept` writes and reads it, and says when it holds.

    `linked`: a citation in it leads to a file or page, which is the owner's to open. What a stranger is shown by a
    link has another row then, without. `numbers`: of the citations that stand in it, leading somewhere or not.
    `blocks`: of each text part in order, the HTML of its blocks.
    """

    message = models.ForeignKey("chat.Message", on_delete=models.CASCADE, related_name="rendered")
    language = models.CharField(max_length=10)
    linked = models.BooleanField()
    digest = models.CharField(max_length=64, help_text="Of all that it was made from; another one: it no longer holds.")
    numbers = models.JSONField(default=list)
    blocks = models.JSONField(default=list)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["message", "language", "linked"], name="one_rendering_per_reader"),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} ({self.language})"
