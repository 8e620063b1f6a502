"""A small API with an OpenAPI document, and a server on loopback that answers its requests and keeps them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PET = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string", "example": "Rex"},
        "tag": {"type": "string", "nullable": True},
        "example": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
        "parent": {"$ref": "#/components/schemas/Pet"},
    },
}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pet shop", "version": "1.2"},
    "servers": [{"url": "https://{region}.pets.example/v1/", "variables": {"region": {"default": "eu"}}}],
    "paths": {
        "/pets": {
            "get": {
                "operationId": "listPets",
                "summary": "Lists the pets.",
                "parameters": [
                    {"name": "limit", "in": "query", "schema": {"type": "integer"}, "description": "At most so many."},
                    {"name": "tags", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "filter[age]", "in": "query", "schema": {"type": "integer"}},
                    {"name": "near", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "Authorization", "in": "header", "required": True, "schema": {"type": "string"}},
                ],
            },
            "post": {
                "operationId": "addPet",
                "description": "Adds a pet.",
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
            },
        },
        "/pets/{petId}": {
            "parameters": [{"$ref": "#/components/parameters/petId"}],
            "get": {"summary": "Returns a pet."},
            "delete": {"operationId": "removePet", "summary": "Removes a pet."},
        },
        "/pets/{petId}/picture": {
            "parameters": [{"$ref": "#/components/parameters/petId"}],
            "get": {"operationId": "picture", "summary": "Returns the picture of a pet."},
        },
        "/login": {
            "post": {
                "operationId": "login",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/x-www-form-urlencoded": {
                            "schema": {"type": "object", "properties": {"user": {"type": "string"}}}
                        }
                    },
                },
            }
        },
        "/upload": {
            "post": {
                "operationId": "upload",
                "requestBody": {"required": True, "content": {"application/octet-stream": {}}},
            }
        },
        "/elsewhere": {"get": {"operationId": "elsewhere", "servers": [{"url": "https://other.example"}]}},
        "/other": {
            "get": {
                "operationId": "other",
                "parameters": [{"name": "a", "in": "query", "schema": {"$ref": "common.yaml#/A"}}],
            }
        },
    },
    "components": {
        "schemas": {"Pet": PET},
        "parameters": {
            "petId": {"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}, "example": "7"}
        },
        "requestBodies": {
            "Pet": {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}
        },
    },
}
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301010018dd8db0"
    "0000000049454e44ae426082"
)


@dataclass
class SentRequest:
    """A request as the shop got it."""

    line: str
    headers: dict[str, str]
    body: str


@dataclass
class PetShop:
    """The running server. `answers`: (status, media type, body) by the path without its query."""

    port: int
    requests: list[SentRequest] = field(default_factory=list)
    answers: dict[str, tuple[int, str, bytes]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def pet_shop() -> Iterator[PetShop]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = self.rfile.read(length).decode()
            shop.requests.append(SentRequest(f"{self.command} {self.path}", dict(self.headers.items()), body))
            path = self.path.partition("?")[0]
            default = (200, "application/json", json.dumps({"path": path}).encode())
            status, media_type, content = shop.answers.get(path, default)
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(content)))
            for name, value in shop.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    shop = PetShop(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield shop
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
