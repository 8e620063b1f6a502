"""Create the clients of providers' protocols, and find the parameters that a protocol lacks.

To add a protocol:

1. Write `llm/providers/<protocol>.py` with a subclass of `HttpClient` and a `StepReader` (`llm.providers.streaming`).
2. Add it to `DEFAULT_BASE_URLS` and `_CLIENT_CLASSES`, and its missing parameters to `_MISSING_PARAMETERS`.
3. Add its kind to `llm.models.Provider.Kind`, and its cache rule to `llm.services`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from importlib import import_module
from typing import Any

from core.crypto import KEY_LOST, is_lost
from core.errors import ModelError
from core.net.url_safety import is_http
from core.sentences import Sentence
from llm.types.model_call import AllocatedWindow, ModelRequest, ProviderClient, ReasoningState, Sampling, StepEvent

SILENCE_TIMEOUT = 120.0  # seconds; on a slow processor, the first token of a model may take that long

OPENAI_URL = "https://api.openai.com/v1"
DEFAULT_BASE_URLS = {
    "openai": OPENAI_URL,
    "responses": OPENAI_URL,
    "anthropic": "https://api.anthropic.com",
    "ollama": "http://127.0.0.1:11434",
}
ANTHROPIC_EFFORTS = (
    "low",
    "medium",
    "high",
    "xhigh",
    "max",
)  # values for `output_config` in Anthropic's Messages protocol
# Parameters of OpenAI's Chat Completions that another protocol lacks.
_MISSING_PARAMETERS = {
    "anthropic": ("top_p", "presence_penalty", "frequency_penalty", "seed", "verbosity"),
    "responses": ("presence_penalty", "frequency_penalty", "seed", "stop"),
    "ollama": ("verbosity",),
}
# Client classes by protocol. Their modules are loaded at the first use, since only the worker calls models. So other
# processes save the memory of the HTTP library.
_CLIENT_CLASSES = {
    "openai": "OpenAIClient",
    "responses": "ResponsesClient",
    "anthropic": "AnthropicClient",
    "ollama": "OllamaClient",
}


def create_client(
    protocol: str, *, base_url: str, api_key: str, silence_timeout: float = SILENCE_TIMEOUT
) -> ProviderClient:
    """Return a client for one provider row. Use it on one event loop, and close it on that loop.

    `base_url`: empty for the protocol's default. `silence_timeout`: the longest wait, in seconds, for the next bytes of
    an answer. The time of a whole answer has no limit. If the stored key cannot be read, the client refuses every call.
    Raises `KeyError` for an unknown protocol, and `ModelError` for an invalid base URL or a key that no HTTP header can
    hold.
    """
    if is_lost(api_key):
        return KeyLostClient()
    key = api_key.strip()
    if not (key.isascii() and key.isprintable()):
        raise ModelError(
            "bad_credentials", "The API key has characters that a key cannot have. Paste it again.", retryable=False
        )
    url = base_url.strip() or DEFAULT_BASE_URLS[protocol]
    if not is_http(url):
        sentence = Sentence("The provider's base URL must begin with http:// or https:// and a host. Correct it.")
        raise ModelError("provider_unreachable", sentence, retryable=False)
    client_class = getattr(import_module(f"llm.providers.{protocol}"), _CLIENT_CLASSES[protocol])
    client: ProviderClient = client_class(url, key, silence_timeout)
    return client


class KeyLostClient:
    """A client of a provider whose stored key cannot be read. It refuses every call."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        raise _key_lost_error()
        yield  # makes the function a generator

    async def list_models(self) -> list[str]:
        raise _key_lost_error()

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None

    async def allocated_window(self, model: str) -> AllocatedWindow | None:
        return None

    async def close(self) -> None: ...


def _key_lost_error() -> ModelError:
    return ModelError("secret_lost", KEY_LOST, retryable=False)


def find_missing_parameter(
    protocol: str, sampling: Sampling, response_format: Mapping[str, Any] | None = None, stop: Sequence[str] = ()
) -> str | None:
    """Return the first of these parameters that the protocol lacks, by its name in OpenAI's protocol, or None."""
    parameters: dict[str, object] = {**sampling.specified_values()}
    if stop:
        parameters["stop"] = stop
    for name, value in parameters.items():
        unknown_effort = name == "reasoning_effort" and protocol == "anthropic" and value not in ANTHROPIC_EFFORTS
        if name in _MISSING_PARAMETERS.get(protocol, ()) or unknown_effort:
            return name
    unsupported_format = protocol == "anthropic" and response_format and "json_schema" not in response_format
    return "response_format" if unsupported_format else None


def is_needed_in_later_turns(state: ReasoningState) -> bool:
    """Return whether the provider needs this reasoning in every later turn, as DeepSeek does.

    Servers that send `reasoning_content` accept it back. Other servers need their reasoning within the turn or not at
    all.
    """
    return any("reasoning_content" in item.get("message", {}) for item in state.items)
