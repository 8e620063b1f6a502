"""A filter for the form that asks why an answer was good or bad."""

from django import template

from chat.conversations.feedback import ReasonChoice
from chat.conversations.feedback import reason_choices as choices_of
from chat.models import Message

register = template.Library()


@register.filter
def reason_choices(message: Message) -> list[ReasonChoice]:
    return choices_of(message)
