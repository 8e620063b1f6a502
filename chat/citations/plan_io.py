"""Answer `citations` requests of `manage.py plan`: whether a passage supports a sentence, without a database."""

from typing import TypedDict

from chat.citations.meaning import similarity
from chat.citations.support import compare
from chat.context.plan_io import Fields


class CitationAnswer(TypedDict):
    """The answer to a `citations` request."""

    supported: bool


def answer_citation(request: Fields) -> CitationAnswer:
    """Answer a `citations` request: compare its sentence with its passage.

    A sentence that is too short to be compared counts as supported, as in the product.
    """
    passage = request.text("passage") or ""
    verdict = compare(request.name("sentence"), passage, title=request.text("title") or "", similarity=similarity)
    return {"supported": verdict is None or verdict.supported}
