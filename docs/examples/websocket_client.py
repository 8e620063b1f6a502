import json
from urllib.request import Request, urlopen

from websockets.sync.client import connect

SITE = "http://127.0.0.1:8000"
TOKEN = "gh_your-token"
SIGNED_IN = {"Authorization": f"Bearer {TOKEN}"}

request = Request(f"{SITE}/api/v1/conversations/", b"{}", {**SIGNED_IN, "Content-Type": "application/json"})
conversation = json.load(urlopen(request))["id"]

with connect(SITE.replace("http", "ws", 1) + "/ws/", additional_headers=SIGNED_IN) as socket:
    socket.send(json.dumps({"type": "watch", "id": 1, "conversation": conversation}))
    socket.send(json.dumps({"type": "send", "id": 2, "conversation": conversation, "text": "Say hello."}))
    for message in socket:
        frame = json.loads(message)
        if frame["type"] == "TURN":
            socket.send(json.dumps({"type": "subscribe", "id": 3, "turn": frame["turn"], "after_seq": 0}))
        elif frame["type"] == "TEXT_MESSAGE_CONTENT":
            print(frame["delta"], end="", flush=True)
        elif frame["type"] in ("RUN_FINISHED", "RUN_STOPPED", "RUN_ERROR"):
            print()
            break
