"""`{{ file.error|translated }}`: a sentence that Python code wrote, in the reader's language."""

from django import template

from llm import sentences

register = template.Library()
register.filter("translated", sentences.translated)
