"""Words about models for templates."""

from django import template

from llm.learning import window_words
from llm.models import Model

register = template.Library()


@register.filter(name="window_words")
def words_of_window(model: Model) -> str:
    """Return where the window in force comes from."""
    return window_words(model)
