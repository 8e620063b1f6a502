"""Pages that are pictures, read by the model that the workspace has chosen for that: one call a page, in the ledger.

`files.registry` has it registered, as the ledger and the texts stand above the files.
"""

from uuid import UUID

from chat.ledger.asking import Billing, ask
from chat.ledger.models import ModelCall
from core.background import submit
from core.errors import ModelError
from llm.models import Model
from llm.services import PATIENCE
from llm.types.model_call import Image, Message, ModelRequest
from personas.services import rules_at

MOST_OUTPUT = 8_192  # tokens of a page
LONGEST = 60_000  # characters of a page


def read_page(model: Model, owner: UUID, picture: bytes) -> str:
    """What stands on a page, given as PNG; empty where that is nothing. For threads. Raises `ModelError`."""
    request = ModelRequest(
        model=model.name,
        messages=(Message("user", rules_at().texts["page_read"], images=(Image("image/png", picture),)),),
        max_output=min(MOST_OUTPUT, model.max_output or MOST_OUTPUT, model.window // 2),
        window=model.window,
    )
    charge = Billing(None, ModelCall.Purpose.READING, owner)
    said = submit(ask(model, request, charge, longest=LONGEST, patience=PATIENCE)).result()
    if said.cut_off or said.unread:
        raise ModelError("page_not_read", "The model did not read the page to its end.", retryable=False)
    return said.text.strip() if any(map(str.isalnum, said.text)) else ""
