"""A scripted re-ranker on loopback, as strict as real ones. It ranks texts by their points (`7 points`)."""

import asyncio
import json
import re
from typing import Any

from files.models import Reranker
from tests.llm.raw_server import RawServer, answer

NOT_ORDERED = "The re-ranker “Ours” failed (“"
KEY = "key-of-the-re-ranker"
MAX_LENGTH = 512  # words of a text with its query
BATCH = 32
COHERE = {"model", "query", "documents", "top_n", "max_tokens_per_doc", "priority", "relevant_spans"}  # of its SDK 7.3
JINAS_MODEL, JINAS_LONGEST = "jina-reranker-v3", 512  # words here; of the real one, tokens
PHYSICAL_BATCH = 512  # words of a text with its query, as llama.cpp is started


class ScriptedReranker(RawServer):
    """The re-ranker's server.

    It speaks Cohere's protocol, or with `tei` that of Text Embeddings Inference. With `llama` it behaves as llama.cpp:
    it takes no model, returns logits, and has its own error for long texts. With `jina` its errors have a `detail` and
    a `code`. `broken` replaces a right answer; None answers nothing. `rank_requests`: the bodies of valid requests."""

    def __init__(
        self, *, tei: bool = False, llama: bool = False, jina: bool = False, broken: bytes | None = b""
    ) -> None:
        super().__init__(self._judge)
        self.tei, self.llama, self.jina, self.broken = tei, llama, jina, broken
        self.rank_requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.2:{self.port}"

    async def _judge(self, head: str, writer: asyncio.StreamWriter) -> None:
        body = json.loads(self.bodies[-1]) if self.bodies else {}
        if self.broken is None:
            await asyncio.Event().wait()
        writer.write(self.broken or self._answer_to(head, body))

    def _answer_to(self, head: str, body: dict[str, Any]) -> bytes:
        if not head.startswith("POST /rerank HTTP"):
            return answer("{}", status="404 Not Found")
        if f"authorization: bearer {KEY}" not in head.lower():
            if self.jina:
                return refused_by_jina("401 Unauthorized", "AUTH_INVALID_API_KEY", "Invalid API key")
            return _json({"message": "invalid api token"}, "401 Unauthorized")
        ways = {
            self.tei: self._refusal_by_tei,
            self.llama: self._refusal_by_llama,
            self.jina: self._refusal_by_jina,
        }
        refusal = ways.get(True, self._refusal_by_cohere)(body)
        if refusal is not None:
            return refusal
        self.rank_requests.append(body)
        texts = body["texts"] if self.tei else body["documents"]
        name = "score" if self.tei else "relevance_score"
        points = [int((re.findall(r"(\d+) points", text) or [0])[0]) for text in texts]
        scores = [{"index": at, name: each - 5.5 if self.llama else each / 10} for at, each in enumerate(points)]
        scores.sort(key=lambda each: -each[name])
        return _json(scores if self.tei else {"id": "1", "results": scores, "meta": {}})

    def _refusal_by_tei(self, body: dict[str, Any]) -> bytes | None:
        for field, kind in (("query", str), ("texts", list)):
            if not isinstance(body.get(field), kind):
                message = f"Failed to deserialize the JSON body into the target type: missing field `{field}`"
                return answer(message, status="422 Unprocessable Entity", media_type="text/plain")
        if not 0 < len(body["texts"]) <= BATCH:
            message = f"batch size {len(body['texts'])} > maximum allowed batch size {BATCH}"
            return _json({"error": message, "error_type": "Validation"}, "422 Unprocessable Entity")
        words = max(len(f"{body['query']} {text}".split()) for text in body["texts"])
        if words >= MAX_LENGTH and not body.get("truncate"):
            message = f"Input validation error: `inputs` must have less than {MAX_LENGTH} tokens. Given: {words}"
            return _json({"error": message, "error_type": "Validation"}, "413 Payload Too Large")
        return None

    def _refusal_by_llama(self, body: dict[str, Any]) -> bytes | None:
        wrong = "" if isinstance(body.get("query"), str) else '"query" must be provided'
        documents = body.get("documents") or body.get("texts")
        if not (isinstance(documents, list) and documents and all(isinstance(each, str) for each in documents)):
            wrong = '"documents" must be a non-empty string array'
        if wrong:
            error = {"code": 400, "message": wrong, "type": "invalid_request_error"}
            return _json({"error": error}, "400 Bad Request")
        words = max(len(f"{body['query']} {text}".split()) for text in body["documents"])
        if words > PHYSICAL_BATCH:
            message = (
                f"input ({words} tokens) is too large to process. increase the physical batch size (current batch "
            )
            error = {"code": 500, "message": f"{message}size: {PHYSICAL_BATCH})", "type": "server_error"}
            return _json({"error": error}, "500 Internal Server Error")
        return None

    def _refusal_by_jina(self, body: dict[str, Any]) -> bytes | None:
        for field in ("model", "query", "documents"):
            if not body.get(field):
                message = f"[RID: 1] Validation error: 'body -> {field}' Field required"
                return _json({"detail": message}, "422 Unprocessable Entity")
        if body["model"] != JINAS_MODEL:
            message = f"Model '{body['model']}' not found"
            return refused_by_jina("400 Bad Request", "INPUT_MODEL_NOT_FOUND", message)
        if max(len(f"{body['query']} {text}".split()) for text in body["documents"]) > JINAS_LONGEST:
            message = f"Input text exceeds the model's maximum of {JINAS_LONGEST} tokens"
            return refused_by_jina("400 Bad Request", "INPUT_TOKEN_LIMIT_EXCEEDED", message)
        return None

    def _refusal_by_cohere(self, body: dict[str, Any]) -> bytes | None:
        unknown = sorted(set(body) - COHERE)
        missing = [name for name in ("model", "query", "documents") if not body.get(name)]
        if unknown or missing:
            message = f"invalid request: {f'unknown field {unknown[0]}' if unknown else f'{missing[0]} is required'}"
            return _json({"message": message}, "400 Bad Request")
        return None


def row_of(server: ScriptedReranker, **more: Any) -> Reranker:
    fields: dict[str, Any] = {"kind": "tei" if server.tei else "cohere", "base_url": server.url, "api_key": KEY}
    model = JINAS_MODEL if server.jina else "" if server.tei or server.llama else "rank-1"
    fields |= {"name": "Ours", "model": model, "active": True}
    return Reranker(**fields | more)


def refused_by_jina(status: str, code: str, detail: str) -> bytes:
    return _json({"detail": detail, "code": code, "request_id": "1"}, status)


def _json(value: Any, status: str = "200 OK") -> bytes:
    return answer(json.dumps(value), status=status, media_type="application/json")
