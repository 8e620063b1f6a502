"""Chainlit with the chat example of its guide. It stores nothing, so it is a lower bound and not an equal."""

import json
from pathlib import Path
from uuid import uuid4

from contrib.bench.peers.client import AnswerExchange, frame, upgrade
from contrib.bench.peers.products import FOLDER, Product, program


class Chainlit(Product):
    name = "Chainlit"

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self.paths = {"Chainlit": self._message}

    def command(self) -> list[str]:
        return [program("chainlit"), "run", str(FOLDER / "chainlit_app.py"), "--headless", "--port", str(self.port)]

    def environment(self) -> dict[str, str]:
        # Chainlit writes its configuration and translations there.
        return {"MODEL_URL": self.model_url, "CHAINLIT_APP_ROOT": str(self.directory)}

    def _message(self, text: str) -> AnswerExchange:
        session = {"clientType": "webapp", "sessionId": str(uuid4()), "threadId": "", "userEnv": "{}"}
        message = {"id": str(uuid4()), "name": "user", "type": "user_message", "output": text, "createdAt": ""}
        event = json.dumps(["client_message", {"message": message, "fileReferences": []}])
        opening = (
            (upgrade("/ws/socket.io/?EIO=4&transport=websocket"), rb'0\{"sid"'),
            (frame("40" + json.dumps(session)), rb'40\{"sid"'),
            (frame('42["connection_successful"]'), rb"clear_call_fn"),
        )
        return AnswerExchange(self.port, frame("42" + event), rb'"task_end"', opening=opening)
