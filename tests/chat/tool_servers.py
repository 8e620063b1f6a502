"""An MCP server that writes its calls into a file. The worker starts it as a process."""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from llm.models import Model, ToolServer
from personas.models import Persona
from tests.conftest import Person

SERVER = """
import asyncio, os, pathlib, sys
from mcp.server import MCPServer

server = MCPServer("diary")
diary = pathlib.Path(sys.argv[1])

def write(line):
    with diary.open("a") as file:
        file.write(line + "\\n")

@server.tool(description="Writes something down.")
def note(text: str) -> str:
    write(text)
    return "Written."

@server.tool(description="Takes ten minutes.")
async def wait() -> str:
    write(f"waiting {os.getpid()}")
    await asyncio.sleep(600)
    write("waited")
    return "Done."

server.run()
"""


@dataclass(frozen=True)
class Diary:
    """The server's row, and a model and a conversation of a persona that may use all of its tools."""

    row: ToolServer
    model: Model
    person: Person
    place: str
    file: Path

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return {"name": f"{self.row.name}__{tool}", "arguments": arguments}

    def ask(self, text: str, *steps: dict[str, Any]) -> Any:
        """Sends a message; the model plays the steps. Returns the turn."""
        script = {"steps": list(steps)}
        return self.person.caller.ask(text, script, self.place, models=[str(self.model.pk)])


def diary(person: Person, scripted: Model, directory: Path, *, approval_required: bool = False) -> Diary:
    program = directory / "diary.py"
    program.write_text(SERVER)
    file = directory / "diary.txt"
    command = shlex.join([sys.executable, str(program), str(file)])
    name = f"d{uuid4().hex[:8]}"
    row = ToolServer.objects.create(name=name, kind="stdio", command=command, approval_required=approval_required)
    model = Model.objects.create(
        provider=scripted.provider, name=f"scripted-{uuid4().hex[:8]}", context_window=64_000, tools=True
    )
    persona = Persona.objects.create(owner=person.user, name="Writer", instructions="Write.", tools=[f"{name}__*"])
    place = str(person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"])
    return Diary(row, model, person, place, file)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
