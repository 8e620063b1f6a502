"""Types for the facts of a model. Their members have the names of the fields of `llm.models.Model`."""

from datetime import date
from decimal import Decimal
from typing import TypedDict


class ModelFacts(TypedDict, total=False):
    """Facts of a model as its provider reports them, stored as JSON in `Model.found`. A missing member is unknown.

    Windows and answers are in tokens, prices are texts in US dollars per million tokens, days are in ISO 8601. `chat`
    is False for a model that does not chat, such as one for embeddings. `tools_tried_on`: the day of the trial that
    showed whether the model calls tools. `source`: the path from which the facts were read.
    """

    context_window: int
    max_output: int
    max_images: int
    input_price: str
    output_price: str
    cached_input_price: str
    cache_write_price: str
    vision: bool
    tools: bool
    reasoning: bool
    efforts: list[str]
    written_calls: bool
    chat: bool
    retires_on: str | None
    tools_tried_on: str
    source: str


class ModelValues(TypedDict, total=False):
    """Values for fields of `Model`. A missing member leaves its field unchanged."""

    context_window: int
    max_output: int | None
    max_images: int | None
    input_price: Decimal | None
    output_price: Decimal | None
    cached_input_price: Decimal | None
    cache_write_price: Decimal | None
    vision: bool
    tools: bool
    reasoning: bool
    efforts: list[str]
    written_calls: bool
    retires_on: date | None
