from llm.models.provider import (
    UNKNOWN_WINDOW,
    Effort,
    Model,
    Provider,
    ToolServer,
    WebSearch,
    price,
    validate_base_url,
    validate_command,
)
from llm.models.web_access import WebAccess
from llm.models.workspace import WorkspaceVersion

__all__ = [
    "UNKNOWN_WINDOW",
    "Effort",
    "Model",
    "Provider",
    "ToolServer",
    "WebAccess",
    "WebSearch",
    "WorkspaceVersion",
    "price",
    "validate_base_url",
    "validate_command",
]
