"""Filters with words about models."""

from django import template

from llm.learning import describe_window_source
from llm.models import Model

register = template.Library()


@register.filter(name="window_words")
def words_of_window(model: Model) -> str:
    """Return the words for the source of the window in force."""
    return describe_window_source(model)
