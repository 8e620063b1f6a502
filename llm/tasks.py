"""Celery tasks of this app."""

from celery import shared_task

from llm import model_facts


@shared_task
def read_models() -> None:
    model_facts.update_all_models()
