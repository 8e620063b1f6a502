from typing import ClassVar

from django.conf import settings
from django.db import models

from llm.models.provider import Model


class FavouriteModel(models.Model):
    """A model that a user has put at the top of their list."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="favourite_models")
    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="favourites")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "model"], name="favourite_model_once_per_user"),
        ]

    def __str__(self) -> str:
        return f"{self.model_id} of {self.user_id}"
