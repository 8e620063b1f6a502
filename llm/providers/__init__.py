"""The protocols that providers speak, how to make a client of one, and what cannot be asked of it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from importlib import import_module
from typing import Any

from core.crypto import LOST, is_lost
from core.errors import ModelError
from core.net.url_safety import is_http
from core.sentences import Sentence
from llm.types.model_call import Allocated, ModelRequest, Provider, ReasoningState, Sampling, StepEvent

SILENCE_TIMEOUT = 120.0  # seconds; a model on a slow processor may think that long before its first token

OPENAI_URL = "https://api.openai.com/v1"
DEFAULT_BASE_URLS = {
    "openai": OPENAI_URL,
    "responses": OPENAI_URL,
    "anthropic": "https://api.anthropic.com",
    "ollama": "http://127.0.0.1:11434",
}
EFFORTS = ("low", "medium", "high", "xhigh", "max")  # of `output_config` in Anthropic's Messages protocol
# Parameters of OpenAI's Chat Completions that another protocol has no word for.
_NO_WORD_FOR = {
    "anthropic": ("top_p", "presence_penalty", "frequency_penalty", "seed", "verbosity"),
    "responses": ("presence_penalty", "frequency_penalty", "seed", "stop"),
    "ollama": ("verbosity",),
}
# Modules by name, loaded at the first client of a kind: of all processes only the worker talks to models, so
# only there is what HTTP takes in memory.
_MODULES = {kind: f"llm.providers.{kind}" for kind in DEFAULT_BASE_URLS}


def create(protocol: str, *, base_url: str, api_key: str, silence_timeout: float = SILENCE_TIMEOUT) -> Provider:
    """A client for one provider row, to be used on one event loop and closed on it.

    `base_url` may be empty: the protocol's own. `silence_timeout`: the longest wait, in seconds, for the next bytes of
    an answer; there is no limit to the whole. Raises `KeyError` for an unknown protocol, and `ModelError` for a key
    that no HTTP header can hold or a base URL that is none. Without the key that is stored, every call is refused.
    """
    if is_lost(api_key):
        return KeyLost()
    key = api_key.strip()
    if not (key.isascii() and key.isprintable()):
        raise ModelError("bad_credentials", "The API key holds characters no key has. Paste it anew.", retryable=False)
    url = base_url.strip() or DEFAULT_BASE_URLS[protocol]
    if not is_http(url):
        sentence = Sentence("The provider's base URL must begin with http:// or https:// and a host. Correct it.")
        raise ModelError("provider_unreachable", sentence, retryable=False)
    client: Provider = import_module(_MODULES[protocol]).Client(url, key, silence_timeout)
    return client


class KeyLost:
    """Stands for a provider whose stored key cannot be read: what would be asked of it is refused here."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        raise _key_lost()
        yield  # makes it a generator

    async def list_models(self) -> list[str]:
        raise _key_lost()

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None

    async def allocated(self, model: str) -> Allocated | None:
        return None

    async def close(self) -> None: ...


def _key_lost() -> ModelError:
    return ModelError("secret_lost", LOST, retryable=False)


def lacking(
    protocol: str, sampling: Sampling, response_format: Mapping[str, Any] | None = None, stop: Sequence[str] = ()
) -> str | None:
    """The first parameter, by its name in OpenAI's protocol, that cannot be said in this protocol; None for all."""
    for name, value in (sampling.given() | ({"stop": stop} if stop else {})).items():
        unknown_effort = name == "reasoning_effort" and protocol == "anthropic" and value not in EFFORTS
        if name in _NO_WORD_FOR.get(protocol, ()) or unknown_effort:
            return name
    unplanned = protocol == "anthropic" and response_format and "json_schema" not in response_format
    return "response_format" if unplanned else None


def wanted_in_later_turns(state: ReasoningState) -> bool:
    """Whether the provider wants this back in every later turn too, as DeepSeek does.

    Servers that send this field take it back; the others want theirs within the turn, or are better off without it.
    """
    return any("reasoning_content" in item.get("message", {}) for item in state.items)
