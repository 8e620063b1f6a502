from llm.models.provider import (
    UNKNOWN_WINDOW,
    Effort,
    Model,
    Provider,
    ToolServer,
    WebSearch,
    validate_base_url,
    validate_command,
)

__all__ = [
    "UNKNOWN_WINDOW",
    "Effort",
    "Model",
    "Provider",
    "ToolServer",
    "WebSearch",
    "validate_base_url",
    "validate_command",
]
