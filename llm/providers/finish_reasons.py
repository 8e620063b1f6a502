"""Map the finish reasons of servers to `FinishReason`.

All protocols share one table, since gateways pass on the words of the provider behind them. An unknown word becomes
`other`, since such an answer may be incomplete.

To add a word, put it into `_NORMAL_ENDS`, `_LENGTHS`, `_CALLS`, `_FILTERED`, `_REASONS` or `_FAILURES`.
"""

from llm.types.model_call import FinishReason

_NORMAL_ENDS = (
    *("stop", "eos", "eos_token", "end_turn", "end_of_turn", "stop_sequence", "stop_token", "stop_str", "end", "eot"),
    *("complete", "completed", "done", "finished", "normal", "reason_stop"),
)
_LENGTHS = ("length", "max_tokens", "max_output_tokens", "max_length", "token_limit", "limit", "reason_max_len")
_CALLS = ("tool_calls", "tool_call", "tool_use", "function_call", "function_calls")
_FILTERED = (
    *("content_filter", "content_filtered", "guardrail_intervened"),  # OpenAI and Azure; Bedrock
    *("sensitive", "error_toxic"),  # GLM; Cohere
    # Gemini's own
    *("safety", "recitation", "language", "prohibited_content", "blocklist", "spii", "model_armor"),
    *("image_safety", "image_prohibited_content", "image_recitation"),
)
_REASONS: dict[str, FinishReason] = {
    **dict.fromkeys(_NORMAL_ENDS, "stop"),
    **dict.fromkeys(_LENGTHS, "length"),
    **dict.fromkeys(_CALLS, "tool_calls"),
    **dict.fromkeys(_FILTERED, "content_filter"),
    "model_length": "context_window",  # Mistral
    "model_context_window_exceeded": "context_window",  # Anthropic, GLM
    "error_limit": "context_window",  # Cohere
    "refusal": "refusal",
    "pause_turn": "pause",  # Anthropic
}
# Words for an answer that the server gave up: of OpenRouter and Mistral, DeepSeek, vLLM, GLM, Cohere, watsonx.
_FAILURES = ("error", "insufficient_system_resource", "abort", "aborted", "network_error", "timeout", "time_limit")
_UNFINISHED = (
    "",
    "null",
    "none",
    "finish_reason_unspecified",
)  # DashScope sends one while the answer continues, Gemini the last


def _normalize(word: str) -> str:
    """Return a word in its normalised form.

    Google adds a detail after a colon: “content_filter: SAFETY”. Vercel uses hyphens.
    """
    return word.strip().lower().partition(":")[0].replace("-", "_").replace(" ", "_")


def is_finish(word: str) -> bool:
    """Return whether a server's word means that the answer has ended."""
    return _normalize(word) not in _UNFINISHED


def is_failure(word: str) -> bool:
    """Return whether a server's word means that the server gave up."""
    return _normalize(word) in _FAILURES


def to_finish_reason(word: str) -> FinishReason:
    """Return the finish reason for a server's word."""
    return _REASONS.get(_normalize(word), "other")
