"""The modules and functions of ours that one turn runs through, from the POST to its last event.

    python -m scripts.trace_turn             modules, in the order in which they are first entered
    python -m scripts.trace_turn --functions with their functions
    python -m scripts.trace_turn --time      stages and SQL statements until the model is asked, in milliseconds

Everything runs in this process: the application answers the request, the worker's event loop carries the turn, a
scripted model over real HTTP answers it, and the events are read as server-sent events. A first turn warms up.
"""

import argparse
import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from scripts import services

if TYPE_CHECKING:  # it needs Django to be set up
    from django.test import AsyncClient, Client

    from tests.scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parents[1]
OURS = ("config", "chat", "projects", "personas", "files", "accounts", "llm", "core")
LIMIT = 45  # modules


class Trace:
    """What is called while it is on: functions by module, in the order of their first calls."""

    def __init__(self) -> None:
        self.on = False
        self.functions: dict[str, list[str]] = {}
        self._known: dict[str, str | None] = {}

    def install(self) -> None:
        """For this thread and all that begin later."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.on or event != "call":
            return
        file = frame.f_code.co_filename
        if file not in self._known:
            self._known[file] = self._module(file)
        module, name = self._known[file], frame.f_code.co_qualname
        if module is None or name in ("<module>", "<lambda>") or "<" in frame.f_code.co_name:
            return
        called = self.functions.setdefault(module, [])
        if name not in called:
            called.append(name)

    @staticmethod
    def _module(file: str) -> str | None:
        path = Path(file)
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in OURS:
            return None
        return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


async def _events(reader: "AsyncClient", path: str, headers: dict[str, str]) -> list[str]:
    """The types of the turn's events, read from its stream."""
    response: Any = await reader.get(path, headers=headers)
    seen: list[str] = []
    async for chunk in response.streaming_content:
        seen += [json.loads(line[6:])["type"] for line in chunk.decode().splitlines() if line.startswith("data: ")]
    return seen


def _one_turn(token: str, client: "Client", reader: "AsyncClient") -> list[str]:
    from chat.turns import runner  # noqa: PLC0415 - only once Django is set up
    from core import background  # noqa: PLC0415

    headers = {"Authorization": f"Bearer {token}"}
    kind = "application/json"
    made = client.post("/api/v1/conversations/", {}, kind, headers=headers).json()
    body = {"text": "Say hello."}
    answer = client.post(f"/api/v1/conversations/{made['id']}/turns/", body, kind, headers=headers)
    turn = answer.json()["turns"][0]["id"]
    background.submit(runner.run(UUID(turn), asyncio.Event())).result()
    return asyncio.run(_events(reader, f"/api/v1/turns/{turn}/events/", headers))


def _furnished() -> tuple[str, "ScriptedModel"]:
    """A person's token in an empty database, and its scripted model."""
    from django.core.management import call_command  # noqa: PLC0415

    from accounts.models import User  # noqa: PLC0415
    from accounts.services import create_token  # noqa: PLC0415
    from llm.models import Provider  # noqa: PLC0415
    from llm.services import save_provider  # noqa: PLC0415
    from tests.scripted_model import ScriptedModel  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    call_command("seed", verbosity=0)
    model = ScriptedModel().__enter__()
    save_provider(
        name="Traced",
        kind=Provider.Kind.OPENAI,
        base_url=model.openai_url,
        api_key="a key",
        models=[("scripted", 128_000)],
        default=True,
    )
    person = User.objects.create_user("traced")
    return create_token(user=person, name="trace")[1], model


def _time(turns: int) -> int:
    from scripts import turn_times  # noqa: PLC0415 - only once Django is set up

    token, model = _furnished()
    for way, timed in turn_times.measured(model, token, turns).items():
        print("\n".join(turn_times.told(way, timed)))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--functions", action="store_true", help="name the functions too")
    parser.add_argument("--time", action="store_true", help="print stages and SQL statements instead")
    parser.add_argument("--turns", type=int, default=20, help="with --time: so many by each way")
    chosen = parser.parse_args()
    trace = Trace()
    if not chosen.time:
        trace.install()
    os.environ["DATABASE_URL"], os.environ["REDIS_URL"] = services.start()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ["ALLOWED_HOSTS"] = "testserver"
    os.environ.setdefault("SECRET_KEY", "only-to-trace-only-to-trace-only-to-trace-12345678")
    import django  # noqa: PLC0415 - its settings need the services' addresses

    django.setup()
    if chosen.time:
        return _time(chosen.turns)
    from django.test import AsyncClient, Client  # noqa: PLC0415

    token, _ = _furnished()
    clients = Client(), AsyncClient()  # the first turn is the one in which they start the application
    _one_turn(token, *clients)
    trace.on = True
    seen = _one_turn(token, *clients)
    trace.on = False
    for module, functions in trace.functions.items():
        print(f"{module:45} {len(functions):3}" + (f"  {', '.join(functions)}" if chosen.functions else ""))
    count = sum(len(functions) for functions in trace.functions.values())
    print(f"{len(trace.functions)} modules (limit {LIMIT}), {count} functions, events: {', '.join(seen)}")
    return len(trace.functions) > LIMIT or seen[-1:] != ["RUN_FINISHED"]


if __name__ == "__main__":
    sys.exit(main())
