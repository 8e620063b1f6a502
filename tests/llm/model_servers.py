"""Scripted answers of model servers about their models: the members and paths of each, and its traps."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

HTML = b"<!doctype html><title>Welcome</title>"
FOREVER = object()  # an answer that begins and never ends


@dataclass(frozen=True, slots=True)
class Redirect:
    to: str


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    method: str
    path: str
    headers: Mapping[str, str]


@dataclass
class ModelServer:
    """A model server. `paths`: the answer at each path (JSON, bytes, `Redirect`, `FOREVER`).

    `shown`: the answers of `/api/show` by model. Other paths get `unknown`, with status 200 if `polite`, as some
    servers do. Methods other than GET are refused, except at `/api/show`. With a `key`, requests without it get an
    error.
    """

    paths: dict[str, Any]
    shown: dict[str, Any] = field(default_factory=dict)
    unknown: bytes = b'{"error": {"message": "Not Found"}}'
    polite: bool = False
    key: tuple[str, str] | None = None
    requests: list[ReceivedRequest] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": self, "over": self._over})
        )
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def admits(self, headers: Message) -> bool:
        return self.key is None or headers.get(self.key[0]) == self.key[1]

    @property
    def paths_asked(self) -> list[str]:
        return [each.path.partition("?")[0] for each in self.requests]


class _Handler(BaseHTTPRequestHandler):
    fake: ModelServer
    over: threading.Event

    def do_GET(self) -> None:
        self._note()
        path = self.path.partition("?")[0]
        answer = self.fake.paths.get(self.path, self.fake.paths.get(path, self.fake.unknown))
        served = self.path in self.fake.paths or path in self.fake.paths
        self._answer(answer, 200 if served or self.fake.polite else 404)

    def do_POST(self) -> None:
        self._note()
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/api/show" or set(body) != {"model"}:
            self._answer({"error": "method not allowed"}, 405)
        elif body["model"] in self.fake.shown:
            self._answer(self.fake.shown[body["model"]], 200)
        else:
            self._answer({"error": f"model '{body['model']}' not found"}, 404)

    def _note(self) -> None:
        self.fake.requests.append(
            ReceivedRequest(self.command, self.path, {n.lower(): v for n, v in self.headers.items()})
        )

    def _answer(self, answer: Any, status: int) -> None:
        if not self.fake.admits(self.headers):
            answer, status = {"error": {"message": "No key."}}, 401
        if isinstance(answer, Redirect):
            self.send_response(307)
            self.send_header("location", answer.to)
            self.end_headers()
            return
        content = _content(answer)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(content)
        if answer is FOREVER:
            self.wfile.flush()
            self.over.wait(30)

    def log_message(self, *args: Any) -> None:
        pass


def _content(answer: Any) -> bytes:
    if isinstance(answer, bytes):
        return answer
    return b"{" if answer is FOREVER else json.dumps(answer).encode()


def names(*ids: str) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": each, "object": "model", "owned_by": "library"} for each in ids]}


def vllm(**fields: Any) -> ModelServer:
    base = {"id": "qwen", "object": "model", "owned_by": "vllm", "root": "Qwen/Qwen3-8B", "parent": None}
    adapter = base | {"id": "sql-adapter", "root": "/adapters/sql", "parent": "qwen", "max_model_len": None}
    return ModelServer({"/v1/models": {"object": "list", "data": [base | {"max_model_len": 32_768} | fields, adapter]}})


def openrouter(**fields: Any) -> ModelServer:
    row = {
        "id": "vendor/clever",
        "context_length": 262_144,
        "architecture": {"input_modalities": ["text", "image"], "output_modalities": ["text"]},
        "pricing": {
            "prompt": "0.000003",
            "completion": "0.000015",
            "request": "0",
            "image": "0.0048",
            "input_cache_read": "0.0000003",
            "input_cache_write": "0.00000375",
        },
        "top_provider": {"context_length": 131_072, "max_completion_tokens": 65_536, "is_moderated": False},
        "supported_parameters": ["tools", "tool_choice", "reasoning", "max_tokens"],
    }
    plain = {
        "id": "vendor/plain",
        "context_length": 8_192,
        "architecture": {"input_modalities": ["text"]},
        "pricing": {"prompt": "0", "completion": "0"},
        "top_provider": {"context_length": None, "max_completion_tokens": None},
        "supported_parameters": ["max_tokens"],
    }
    return ModelServer({"/api/v1/models": {"data": [row | fields, plain]}})


def llama_cpp(n_ctx: Any = 8_192) -> ModelServer:
    meta = {"vocab_type": 2, "n_vocab": 151_936, "n_ctx_train": 131_072, "n_params": 7_000_000_000}
    row = {"id": "model.gguf", "object": "model", "owned_by": "llamacpp", "meta": meta}
    props = {
        "default_generation_settings": {"id": 0, "n_ctx": n_ctx, "params": {"n_predict": -1, "max_tokens": -1}},
        "total_slots": 4,
        "modalities": {"vision": False, "audio": False},
        "chat_template": "{{ messages }}",
    }
    listed = {"object": "list", "data": [row], "models": [{"name": "model.gguf", "capabilities": ["completion"]}]}
    return ModelServer({"/v1/models": listed, "/props": props})


def lm_studio() -> ModelServer:
    loaded = {
        "type": "llm",
        "key": "qwen/qwen3-4b",
        "display_name": "Qwen3 4B",
        "max_context_length": 262_144,
        "loaded_instances": [{"id": "qwen/qwen3-4b", "config": {"context_length": 16_384, "flash_attention": True}}],
        "capabilities": {"vision": False, "trained_for_tool_use": True},
    }
    idle = {"type": "llm", "key": "idle", "max_context_length": 131_072, "loaded_instances": [], "capabilities": None}
    paths = {"/v1/models": names("qwen/qwen3-4b", "idle"), "/api/v1/models": {"models": [loaded, idle]}}
    return ModelServer(paths, unknown=HTML, polite=True)


def litellm() -> ModelServer:
    info = {
        "id": "4f2",
        "max_tokens": 8_192,
        "max_input_tokens": 200_000,
        "max_output_tokens": 8_192,
        "input_cost_per_token": 3e-06,
        "output_cost_per_token": 1.5e-05,
        "cache_read_input_token_cost": 3e-07,
        "cache_creation_input_token_cost": None,
        "supports_vision": True,
        "supports_function_calling": True,
        "supports_reasoning": None,
    }
    smaller = info | {"id": "4f3", "max_input_tokens": 128_000, "input_cost_per_token": 4e-06, "supports_vision": False}
    nulls = dict.fromkeys(info) | {"id": "4f4", "max_tokens": 4_096}
    rows = [("smart", info), ("smart", smaller), ("odd", nulls)]
    data = [{"model_name": name, "litellm_params": {"model": "x"}, "model_info": each} for name, each in rows]
    return ModelServer({"/v1/models": names("smart", "odd"), "/model/info": {"data": data}})


def ollama(*, loaded: int | None = None, parameters: str | None = None) -> ModelServer:
    show = {
        "details": {"family": "llama"},
        "capabilities": ["completion", "tools", "thinking"],
        "model_info": {
            "general.architecture": "llama",
            "llama.context_length": 131_072,
            "llama.rope.dimension_count": 128,
        },
        **({} if parameters is None else {"parameters": parameters}),
    }
    running = {"name": "llama3.2:latest", "model": "llama3.2:latest", "size_vram": 5, "context_length": loaded}
    paths = {
        "/v1/models": names("llama3.2:latest"),
        "/api/version": {"version": "0.15.2"},
        "/api/tags": {"models": [{"name": "llama3.2:latest", "model": "llama3.2:latest"}]},
        "/api/ps": {"models": [running] if loaded else []},
    }
    return ModelServer(paths, shown={"llama3.2": show, "llama3.2:latest": show})


def anthropic(**fields: Any) -> ModelServer:
    supported = {"supported": True}
    effort = {**supported, **dict.fromkeys(("low", "medium", "high"), supported), "max": {"supported": False}}
    row = {
        "type": "model",
        "id": "claude-opus-5-5",
        "display_name": "Claude",
        "created_at": "2026-09-01T00:00:00Z",
        "max_input_tokens": 1_000_000,
        "max_tokens": 128_000,
        "lifecycle": "active",
        "retires_at": None,
        "capabilities": {
            "thinking": {**supported, "types": {}},
            "image_input": supported,
            "pdf_input": supported,
            "effort": effort,
        },
    }
    old = row | {
        "id": "claude-old",
        "max_input_tokens": 200_000,
        "max_tokens": 64_000,
        "lifecycle": "deprecated",
        "retires_at": "2026-12-10T17:00:00Z",
    }
    data = {"data": [row | fields, old], "has_more": False, "first_id": "claude-opus-5-5", "last_id": "claude-old"}
    return ModelServer({"/v1/models": data}, key=("x-api-key", "key"))


def gemini() -> ModelServer:
    row = {
        "name": "models/gemini-3-pro",
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "thinking": True,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
    paths = {"/v1beta/openai/models": names("models/gemini-3-pro"), "/v1beta/models": {"models": [row]}}
    return ModelServer(paths)
