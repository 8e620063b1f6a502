"""AG-UI through its own client for Node, which refuses events in a wrong order; `make setup` installs it."""

import json
import os
import shutil
import subprocess

import pytest

from tests.chat.tool_servers import Diary
from tests.conftest import Person
from tests.contrib.ag_ui.client import WEATHER, props, user
from tests.product import ROOT, WAIT

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(
        shutil.which("node") is None or not (ROOT / "tests/node/node_modules/@ag-ui/client").is_dir(),
        reason="AG-UI's client for Node is not installed: install node and npm, then run make setup",
    ),
]


def test_the_client_for_node_works_unchanged(person: Person, guarded: Diary) -> None:
    call = {"name": "weather", "arguments": {"town": "Conwy"}}
    looking = {"reasoning": "Look.", "text": "Let me look.", "tool_calls": [call]}
    environment = {
        **os.environ,
        "URL": f"{person.caller.url}/api/v1/ag-ui/",
        "TOKEN": person.token,
        "FORWARDED": json.dumps(props(guarded)),
        "TOOLS": json.dumps([WEATHER]),
        "ASKED": user("Weather?", looking, {"text": "It rains."})["content"],
        "GUARDED": user("Write", {"tool_calls": [guarded.call("note", text="one")]}, {"text": "Done."})["content"],
    }
    program = ["node", "ag_ui.mjs"]
    ran = subprocess.run(
        program, cwd=ROOT / "tests/node", env=environment, capture_output=True, text=True, timeout=WAIT
    )
    assert ran.returncode == 0, ran.stderr
    output = json.loads(ran.stdout)
    assert [(role, text) for role, text, _ in output["messages"][1:]] == [
        ("reasoning", "Look."),
        ("assistant", "Let me look."),
        ("tool", "rain"),
        ("assistant", "It rains."),
    ]
    assert output["messages"][2][2] == [{"name": "weather", "arguments": '{"town": "Conwy"}'}]
    assert output["names"].count("RUN_STARTED") == output["names"].count("RUN_FINISHED") == 2
    assert person.caller.get(f"conversations/{output['thread']}/")["state"] == "idle"
    assert output["interrupt"]["reason"] == "tool_approval" and guarded.lines() == ["one"]
    assert [role for role, _, _ in output["guarded"]] == ["user", "assistant", "tool", "assistant"]
    assert output["guarded"][-1][1] == "Done." and "nothing_to_answer" in output["refused"]
