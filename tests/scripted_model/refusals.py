"""How servers refuse a prompt that is too long, or has too many images. `{used}` and `{limit}` are filled in."""

import json
from collections.abc import Mapping
from typing import Any

# By style: the status, None for an event in a stream of status 200, and the body.
TOO_LONG: Mapping[str, tuple[int | None, Any]] = {
    # lmstudio-bug-tracker#2205, #2256: while streaming it begins with 200, and the refusal is an event
    "lmstudio": (
        None,
        {
            "error": {
                "message": "The number of tokens to keep from the initial prompt is greater than the context length. "
                "Try to load the model with a larger context length, or provide a shorter input"
            }
        },
    ),
    # opencode#2259, #11141: without streaming the error is a text
    "lmstudio_json": (400, {"error": "Cannot truncate prompt with n_keep ({used}) >= n_ctx ({limit})"}),
    # cline#3120
    "xai": (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is {limit} but the request contains {used} tokens.",
        },
    ),
    # geode#668; Z.AI's list of codes
    "glm": (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
    # Roo-Code#5729, continue#11717
    "groq": (
        413,
        {
            "error": {
                "message": "Request too large for model `m` in organization `org_1` service tier `on_demand` on tokens "
                "per minute (TPM): Limit {limit}, Requested {used}, please reduce your message size and try again.",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
    ),
    # qwen-code#98
    "dashscope": (
        400,
        {
            "error": {
                "code": "invalid_parameter_error",
                "message": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {limit}]",
            }
        },
    ),
    # Amazon Bedrock behind a gateway: no number at all
    "bedrock": (400, {"message": "Input is too long for requested model."}),
    # nobody's: what a server might say that nobody knows yet
    "unheard_of": (422, {"detail": "Got {used} of them, at most {limit} go in here."}),
    "mute": (400, {"error": {"message": "This cannot be done."}}),
}


def too_long(style: str, used: int, limit: int) -> tuple[int | None, Any]:
    status, body = TOO_LONG[style]
    filled = json.dumps(body).replace("{used}", str(used)).replace("{limit}", str(limit))
    return status, json.loads(filled)


def too_many_images(limit: int) -> dict[str, Any]:
    """vllm#17092, vllm#13513."""
    message = f"At most {limit} image(s) may be provided in one prompt."
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}


def images_in(value: Any) -> int:
    """How many images a request of OpenAI's protocol has."""
    if isinstance(value, Mapping):
        return int(value.get("type") == "image_url") + sum(map(images_in, value.values()))
    return sum(map(images_in, value)) if isinstance(value, list) else 0
