"""A furnished house: one person's conversations, project, persona, files, tasks and run, and the pages they lead to."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.product import Caller, until

CONTRACT = """Service agreement

Clause 5. The provider answers within one working day.

Clause 7. The fee is limited to 500 euros a year; what exceeds it is free of charge.

Clause 9. Either party may end the agreement with a notice of three months.
"""
ANSWER = """The fee is limited by **clause 7** [1]: at most 500 euros a year, and what exceeds it is free of charge.

| clause | rules |
|---|---|
| 5 | answers within one working day |
| 7 | the limit of the fee |
| 9 | three months' notice |

```python
def owed(fee: float) -> float:
    return min(fee, 500.0)
```
"""
RULES = "Five, seven and nine: response time, fee limit, notice [1]."
SUMMARY = """## Earlier
The agreement was read clause by clause.

## Now
Which clause limits the fee is not settled yet."""
PROFILE = {"name": "Short conversations", "window": 12_000, "ceiling": 5_000, "floor": 700, "keep_recent": 4}
AROUND = [
    ("Offers for the boat, compared", ["boat"]),
    ("Notes of the meeting of Monday", ["work"]),
    ("A letter to the landlord", ["home"]),
    ("Why is the build slow?", ["work"]),
]
LETTER = "Write to {{who}} in a {{tone:friendly|formal}} tone about {{subject:the boat trip}}."
ITEMS = [
    {"title": "Collect the offers"},
    {"title": "Compare prices and dates"},
    {"title": "Book the boat", "breakpoint": True, "needs": "which of the two offers"},
]
DRAFT: dict[str, Any] = {
    "steps": [
        {"tool_calls": [{"name": "draft_checklist", "arguments": {"items": ITEMS}}]},
        {"text": "I collect the offers, compare them, and ask you before anything is booked."},
    ]
}
EXPORT = [
    {
        "uuid": "11111111-2222-4333-8444-555555555555",
        "name": "Names for a boat",
        "created_at": "2024-11-21T10:00:00Z",
        "updated_at": "2024-11-21T10:01:00Z",
        "chat_messages": [
            {"uuid": "a1", "sender": "human", "text": "Name my boat.", "created_at": "2024-11-21T10:00:00Z"},
            {"uuid": "a2", "sender": "assistant", "text": "Wendy.", "created_at": "2024-11-21T10:00:05Z"},
        ],
    }
]


@dataclass
class House:
    """`say` is how the model answers from then on. `model` and `profile` are ids; the model calls tools, and
    conversations under the profile are soon summarised (PROFILE)."""

    caller: Caller
    say: Callable[[dict[str, Any]], object]
    model: str
    profile: str

    def furnish(self) -> dict[str, str]:
        """The paths of its pages by name."""
        file = self._file()
        persona = self._persona()
        project = self._project(file, persona)
        return {
            **self._around(project),
            **self._conversation(project),
            **self._summarised(persona),
            **self._tasks(persona),
            "home": "/",
            "temporary": "/?temporary=yes",
            "search": "/search/?q=clause",
            "projects": "/projects/",
            "project": f"/projects/{project}/",
            "project-search": f"/projects/{project}/?q=fee",
            "files": "/files/",
            "file": f"/files/{file}/",
            "read-file": f"/files/{file}/read/",
            "readings": "/readings/",
            **self._reading(file),
            "personas": "/personas/",
            "persona": f"/personas/{persona}/",
            "persona-new": "/personas/new/",
            "prompts": "/personas/prompts/",
            "imports": "/import/",
            "import": f"/import/{self._import()}/",
            "shares": "/shares/",
            "usage": "/usage/",
            "memory": "/memory/",
            "day": "/daily/",
            **{
                f"settings-{name}": f"/settings/{name}/"
                for name in ("email", "password", "second-factor", "groups", "tokens", "tools", "webhooks", "sessions")
            },
            "settings": "/settings/",
            "examples": "/api/examples/",
            "help": "/help/use/context-panel/",
            "missing": "/nothing-is-here/",
        }

    def _around(self, project: str) -> dict[str, str]:
        """Create further rows of a person: conversations with tags, one of them pinned, and prompts."""
        for title, tags in AROUND:
            body = {"title": title, "tags": tags, "pinned": title == AROUND[0][0]}
            self.caller.post("conversations/", body, expect=201)
        asks = self.caller.post("prompts/", {"name": "Letter", "text": LETTER}, expect=201)["id"]
        self.caller.post("prompts/", {"name": "Clause", "text": "Which clause?", "project": project}, expect=201)
        return {"prompt": f"/prompts/{asks}/use/", "choose": "/?choose"}

    def _file(self) -> str:
        upload = self.caller.http.post("files/", files={"file": ("contract.txt", CONTRACT.encode())}).json()["id"]
        until(lambda: self.caller.get(f"files/{upload}/")["status"] == "ready", "the file has been read")
        return str(upload)

    def _persona(self) -> str:
        body = {
            "name": "Lawyer",
            "description": "Reads contracts and names the clause.",
            "instructions": "Name the clause you rely on. Keep it short.",
            "reminder": "Quote the clause.",
            "starter_messages": ["What does this contract forbid?"],
            "model": self.model,
            "budget_profile": self.profile,
        }
        return str(self.caller.post("personas/", body, expect=201)["id"])

    def _project(self, file: str, persona: str) -> str:
        body = {"name": "Contracts", "instructions": "All of these are in force.", "persona": persona}
        project = self.caller.post("projects/", body, expect=201)["id"]
        self.caller.post(f"projects/{project}/files/", {"file": file, "pinned": True}, expect=201)
        return str(project)

    def _ask(self, place: str, text: str, answer: str) -> Any:
        self.say({"text": answer})
        turn = self.caller.post(f"conversations/{place}/turns/", {"text": text})["turns"][0]
        return self.caller.ended(turn["id"])

    def _conversation(self, project: str) -> dict[str, str]:
        place = self.caller.post("conversations/", {"project": project}, expect=201)["id"]
        first = self._ask(place, "Which rules does our service agreement have?", RULES)
        turn = self._ask(place, "Which clause limits the fee?", ANSWER)
        self.caller.http.patch(f"conversations/{place}/", json={"title": "The fee limit"})
        link = self.caller.post(f"conversations/{place}/shares/", expect=201)["url"]
        self.caller.post(f"conversations/{place}/team-shares/", {"project": project}, expect=201)
        question = self.caller.get(f"messages/{turn['message']}/")["parent"]
        return {
            "answer": f"/c/{place}/",
            "context": f"/turns/{turn['id']}/report/",
            "context-first": f"/turns/{first['id']}/report/",
            "sources": f"/c/{place}/sources/",
            "options": f"/c/{place}/organise/",
            "share": f"/c/{place}/share/",
            "team-share": f"/c/{place}/team-shares/",
            "received": "/shared-with-me/",
            "shared": link[link.index("/s/") :],
            "edit": f"/messages/{question}/edit/",
            "message-menu": f"/messages/{turn['message']}/menu/",
        }

    def _summarised(self, persona: str) -> dict[str, str]:
        place = self.caller.post("conversations/", {"persona": persona}, expect=201)["id"]
        for clause in range(1, 10):
            self._ask(place, f"What does clause {clause} say?", f"About clause {clause}: {ANSWER}")
        self.caller.http.patch(f"conversations/{place}/", json={"title": "Clause by clause"})
        self.say({"text": SUMMARY})
        self.caller.post(f"conversations/{place}/summarise/")
        summary = f"conversations/{place}/summary/"
        until(lambda: self.caller.http.get(summary).status_code == 200, "the summary is written")
        return {"summary": f"/c/{place}/"}

    def _tasks(self, persona: str) -> dict[str, str]:
        for title in ("Buy cacao", "Call Lan about the invoice"):
            self.caller.post("tasks/", {"title": title, "level": "task"}, expect=201)
        body = {
            "title": "Plan the boat trip",
            "level": "task",
            "archetype": "hybrid",
            "notes": "Four people, two days.",
        }
        task = self.caller.post("tasks/", body, expect=201)
        self.caller.post("tasks/", {"title": "See the sea", "level": "objective", "horizon": "month"}, expect=201)
        self.say(DRAFT)
        run = self.caller.post(f"tasks/{task['id']}/runs/", {"persona": persona, "start": False})["id"]
        until(lambda: self.caller.get(f"runs/{run}/")["status"] == "ready", "the checklist is drafted")
        month, year = task["date"][:7], task["date"][:4]
        return {
            "tasks": "/tasks/",
            "tasks-month": f"/tasks/month/{month}/",
            "tasks-year": f"/tasks/year/{year}/",
            "task": f"/tasks/{task['id']}/",
            "run": f"/c/{self.caller.get(f'runs/{run}/')['conversation']}/",
        }

    def _reading(self, file: str) -> dict[str, str]:
        self.say({"text": "- The fee is limited to 500 euros a year [1].\n- Late answers cost 40 euros a day [1]."})
        question = {"file": file, "question": "Which limits does it name?", "model": self.model}
        calls = self.caller.post("readings/plan/", question, expect=200)["calls"]
        reading = self.caller.post("readings/", {**question, "calls": calls})["id"]
        until(lambda: self.caller.get(f"readings/{reading}/")["status"] == "done", "the file is read")
        doubt = self.caller.get(f"readings/{reading}/")["citation_check"]["doubts"][0]["citation"]
        return {"reading": f"/readings/{reading}/", "reading-doubt": f"/readings/{reading}/citations/{doubt}/"}

    def _import(self) -> str:
        export = json.dumps(EXPORT).encode()
        job = self.caller.http.post("imports/", files={"file": ("conversations.json", export)}).json()["id"]
        until(lambda: self.caller.get(f"imports/{job}/")["status"] == "done", "the export is imported")
        return str(job)
