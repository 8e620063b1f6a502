"""Suggest the window, prices and abilities of a model by its name, offline, from the data of genai-prices.

A suggestion only fills a form or a new row. A name alone suffices only for vendors that serve their models themselves:
the window of an open model depends on the start of its server, its price on the operator.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from urllib.parse import urlsplit

from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, TieredPrices

SOURCE = f"genai-prices {version('genai-prices')}"
PRICE_PLACES = 6  # decimal places that a row stores
# Vendors that serve their models themselves, but for the open models in `_OPEN_MODELS`.
_CLOSED_VENDORS = ("anthropic", "google", "openai")
_OPEN_MODELS = re.compile(r"gpt-oss|gemma")

_SPECIAL_MODELS = re.compile(r"audio|realtime|transcribe|tts|image|embed|search|instruct|live|whisper")
# (vision, tools) by the name, from the vendors' pages: genai-prices has no abilities. The first match decides.
_ABILITIES: tuple[tuple[re.Pattern[str], tuple[bool | None, bool | None]], ...] = (
    (_SPECIAL_MODELS, (None, None)),
    (re.compile(r"claude-(?:2|v1|instant)"), (False, False)),
    (re.compile(r"claude-"), (True, True)),
    (re.compile(r"gemini-"), (True, True)),
    (re.compile(r"o1-(?:mini|preview)"), (False, False)),
    (re.compile(r"o3-mini|gpt-3\.5|gpt-4(?:$|-\d)"), (False, True)),
    (re.compile(r"gpt-(?:4o|4\.|4-turbo|[5-9])|^o[134]"), (True, True)),
)
_REASONING_MODELS = re.compile(
    r"^o[134](?:$|-)|gpt-[5-9](?!.*chat)|gemini-(?:2\.5|[3-9])|claude-(?:3-7|[a-z]+-[4-9])|deepseek-reasoner"
)

# Names of models that do not chat, but embed, rank, speak, draw or moderate.
_NO_CHAT_MODELS = re.compile(
    r"(?:^|[-_/.:])(?:embed(?:der|ding|dings)?|bge|gte|e5|minilm|paraphrase|voyage|rerank(?:er)?|whisper|tts"
    r"|transcribe|realtime|moderation|dall-e|gpt-image|imagen|veo|sora)(?:$|[-_/.:0-9])"
)

# Reasoning efforts that models accept, from the vendors' pages. The first match decides. Without a match they are
# unknown.
_LOW_TO_MAX = ("low", "medium", "high", "xhigh", "max")
_EFFORTS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"audio|realtime|transcribe|tts|image|embed|instruct|-chat|o1-(?:mini|preview)"), ()),
    (re.compile(r"^gpt-5\.[6-9]"), ("none", *_LOW_TO_MAX)),
    (re.compile(r"^gpt-5\.[2-5]"), ("none", "low", "medium", "high", "xhigh")),
    (re.compile(r"^gpt-5\.1"), ("none", "low", "medium", "high")),
    (re.compile(r"^gpt-5(?:$|-)"), ("minimal", "low", "medium", "high")),
    (re.compile(r"^o[134](?:$|-)"), ("low", "medium", "high")),
    (re.compile(r"^claude-haiku-5[-.][5-9]"), ("none", *_LOW_TO_MAX)),
    (re.compile(r"^claude-sonnet-5[-.][5-9]"), ("none", *_LOW_TO_MAX)),
    (re.compile(r"^claude-\w+-(?:4[-.][7-9]|[5-9])(?:$|[-.])"), _LOW_TO_MAX),
    (re.compile(r"^claude-(?:opus|sonnet)-4[-.]6"), ("low", "medium", "high", "max")),
    (re.compile(r"^claude-opus-4[-.]5"), ("low", "medium", "high")),
    (re.compile(r"^deepseek-v[4-9]"), ("none", "high", "max")),
    (re.compile(r"^gpt-oss"), ("low", "medium", "high")),
    (re.compile(r"^gemini-3"), ("low", "medium", "high")),
    (re.compile(r"^gemini-2\.5-flash"), ("none", "low", "medium", "high")),
    (re.compile(r"^gemini-2\.5"), ("low", "medium", "high")),
)


# Maximum number of images per request, by the host of the vendor's API, from its pages or its error messages.
_MAX_IMAGES = {
    "api.anthropic.com": 100,
    "api.groq.com": 5,
    "api.mistral.ai": 8,
    "api.openai.com": 500,
}
_AZURE_MAX_IMAGES = 50
_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Known facts of a model.

    `window` and `max_output` are in tokens, prices in US dollars per million tokens. None: unknown.
    """

    window: int | None
    max_output: int | None
    input_price: Decimal | None
    output_price: Decimal | None
    cached_input_price: Decimal | None
    cache_write_price: Decimal | None
    vision: bool | None
    tools: bool | None
    reasoning: bool | None


def suggest(provider_kind: str, model_name: str, *, base_url: str = "") -> Suggestion | None:
    """Return the known facts of a model; None if nothing is known.

    `base_url` decides whose prices apply. If it is empty, the prices are those of the vendor of `provider_kind`, else
    those of the vendor in the model's name.
    """
    model = _find_at_host(base_url, model_name) if base_url else _find_of_vendor(model_name, provider_kind)
    if model is None:
        vendor, _, rest = model_name.partition("/")  # gateways name models "vendor/model"
        name = rest if rest and vendor in _CLOSED_VENDORS else model_name
        model = next(filter(None, (_find_of_vendor(name, vendor) for vendor in _CLOSED_VENDORS)), None)
    if model is None:
        return None
    prices = model.get_prices(datetime.now(UTC))
    name = model_name.rpartition("/")[2].lower()
    vision, tools = _known_abilities(name)
    return Suggestion(
        window=model.context_window,
        max_output=None,  # genai-prices has none
        input_price=_short_prompt_price(prices.input_mtok),
        output_price=_short_prompt_price(prices.output_mtok),
        cached_input_price=_short_prompt_price(getattr(prices, "cache_read_mtok", None)),
        cache_write_price=_short_prompt_price(getattr(prices, "cache_write_mtok", None)),
        vision=vision,
        tools=tools,
        reasoning=True if _REASONING_MODELS.search(name) and not _SPECIAL_MODELS.search(name) else None,
    )


def can_chat_by_name(model_name: str) -> bool:
    """Return whether the model can chat, by its name. Models for other work, such as embeddings, cannot."""
    return not _NO_CHAT_MODELS.search(model_name.lower())


def efforts_of(model_name: str) -> list[str]:
    """Return the reasoning efforts that a model of this name accepts; empty if they are unknown."""
    name = model_name.rpartition("/")[2].lower()  # gateways name models "vendor/model", Google "models/…"
    return list(next((efforts for pattern, efforts in _EFFORTS if pattern.search(name)), ()))


def known_image_limit(base_url: str) -> int | None:
    """Return the number of images that the API at this URL accepts per request; None if unknown."""
    host = urlsplit(base_url).hostname or ""
    return _AZURE_MAX_IMAGES if host.endswith(_AZURE_HOSTS) else _MAX_IMAGES.get(host)


def _find_at_host(base_url: str, name: str) -> ModelInfo | None:
    try:
        return get_snapshot().find_provider_model(name, None, None, base_url)[1]
    except LookupError:
        return None


def _find_of_vendor(name: str, vendor: str) -> ModelInfo | None:
    if vendor not in _CLOSED_VENDORS or _OPEN_MODELS.search(name.lower()):
        return None
    try:
        provider, model = get_snapshot().find_provider_model(name, None, vendor, None)
    except LookupError:
        return None
    return model if model in provider.models else None  # the package may return a model of another vendor


def _short_prompt_price(price: Decimal | TieredPrices | None) -> Decimal | None:
    """Return the price for short prompts, rounded to the decimal places of a row, which has only one price."""
    price = price.base if isinstance(price, TieredPrices) else price
    return price if price is None or price == round(price, PRICE_PLACES) else round(price, PRICE_PLACES)


def _known_abilities(name: str) -> tuple[bool | None, bool | None]:
    for pattern, abilities in _ABILITIES:
        if pattern.search(name):
            return abilities
    return None, None
