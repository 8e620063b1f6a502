from llm.models.favourite import FavouriteModel
from llm.models.provider import (
    UNKNOWN_WINDOW,
    Effort,
    Model,
    OpenApiDocument,
    Provider,
    ToolServer,
    WebSearch,
    price_field,
    validate_base_url,
    validate_command,
)
from llm.models.tool_sign_in import ToolClient, ToolGrant, ToolSignIn
from llm.models.web_access import WebAccess

__all__ = [
    "UNKNOWN_WINDOW",
    "Effort",
    "FavouriteModel",
    "Model",
    "OpenApiDocument",
    "Provider",
    "ToolClient",
    "ToolGrant",
    "ToolServer",
    "ToolSignIn",
    "WebAccess",
    "WebSearch",
    "price_field",
    "validate_base_url",
    "validate_command",
]
