"""The models that a person can choose, in order, and the person's favourites."""

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet, Value
from django.db.models.functions import Coalesce, Lower, NullIf

from accounts.access.rights import models_of
from accounts.models import User
from core.requests import get_or_404
from llm.models import FavouriteModel, Model


def offered_models(user: User) -> QuerySet[Model]:
    """Return the models for a list of choices, favourites first, then in the order of the administrators.

    Each row is annotated with `favourite`. Hidden models are left out, and so are models that do not chat according to
    their provider. Personas, programs and conversations that use such a model continue to use it.
    """
    name = Coalesce(NullIf("display_name", Value("")), "name")
    rows = with_favourites(models_of(user), user).filter(hidden=False).exclude(found__contains={"chat": False})
    return rows.order_by(F("favourite").desc(), "order", Lower(name), "provider__name", "pk")


def with_favourites(models: QuerySet[Model], user: User) -> QuerySet[Model]:
    """Annotate the models with `favourite`: whether this person has marked it."""
    return models.annotate(favourite=Exists(FavouriteModel.objects.filter(model=OuterRef("pk"), user=user)))


@transaction.atomic
def set_favourite(*, user: User, model: object, favourite: bool) -> Model:
    """Mark a model (its id) that the person may use as a favourite, or unmark it. Raises `NotFound`."""
    row = get_or_404(with_favourites(models_of(user), user), model, "model")
    if favourite:
        FavouriteModel.objects.get_or_create(user=user, model=row)
    else:
        FavouriteModel.objects.filter(user=user, model=row).delete()
    return get_or_404(with_favourites(models_of(user), user), model, "model")
