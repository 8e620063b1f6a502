"""Read scanned pages with the model that the workspace has chosen for it. Each page is one call in the ledger.

`read_page` is registered in `files.registry`, because `files` may not import the ledger and the texts for models.
"""

from uuid import UUID

from chat.ledger.asking import Billing, ask
from chat.ledger.models import ModelCall
from core.background import submit
from core.errors import ModelError
from llm.models import Model
from llm.services import SILENCE_TIMEOUT
from llm.types.model_call import Image, ModelMessage, ModelRequest
from personas.services import rules_at

MAX_OUTPUT = 8_192  # tokens per page
MAX_LENGTH = 60_000  # characters per page


def read_page(model: Model, owner: UUID, picture: bytes) -> str:
    """Return the text on a page; empty if it has none. `picture` is a PNG.

    Blocks until the model has answered, so call it in a thread. Raises `ModelError`.
    """
    request = ModelRequest(
        model=model.name,
        messages=(ModelMessage("user", rules_at().texts["page_read"], images=(Image("image/png", picture),)),),
        max_output=min(MAX_OUTPUT, model.max_output or MAX_OUTPUT, model.window // 2),
        window=model.window,
    )
    charge = Billing(None, ModelCall.Purpose.READING, owner)
    reply = submit(ask(model, request, charge, longest=MAX_LENGTH, patience=SILENCE_TIMEOUT)).result()
    if reply.cut_off or reply.unread:
        raise ModelError("page_not_read", "The model did not read the page to its end.", retryable=False)
    return reply.text.strip() if any(map(str.isalnum, reply.text)) else ""
