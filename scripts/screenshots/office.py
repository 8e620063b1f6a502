"""A law office in an empty product, built through its API, and the paths of the pages that pictures show."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scripts.screenshots.texts import sections, text_of
from tests.product import Caller, until

DEFAULT = "qwen3-14b"
COMPARED = "Write two sentences to the landlord that decline the offer and keep the talks open."
READING = "When was which zone above −18 °C? Put it into one timeline."
CHECKLIST = [
    {"title": "List the damage with its evidence"},
    {"title": "Write the claim letter"},
    {"title": "Send it to Holtmann", "breakpoint": True, "needs": "the approval of Mr Ritter"},
]
COLLEAGUES = (
    ("Inventory of the estate", "lorenzen"),
    ("Limitation of the rent claims", "lorenzen"),
    ("Terms of Baltic Ship Supply", "baltic"),
    ("Retention of title in the terms", "baltic"),
    ("Agenda of the partners' meeting", "office"),
    ("Job advert for a paralegal", "office"),
    ("Which court for the estate?", "lorenzen"),
    ("Reminder letters, second level", "office"),
    ("Liability cap in supply contracts", "baltic"),
)
WORKSPACE = {"visibility": "workspace"}
PINNED_FILES = ("Lease", "Minutes", "Expert")  # of the project's files: pinned, so that they are sent whole


@dataclass
class Office:
    """`say` sets the answer of a model from then on. `models` and `groups` are ids by name."""

    caller: Caller
    say: Callable[[str, dict[str, Any]], object]
    models: dict[str, str]
    groups: dict[str, str]
    profile: str
    files: dict[str, str] = field(default_factory=dict)

    def fill(self, documents: dict[str, bytes]) -> dict[str, str]:
        """Build it all; return the paths of pages by name."""
        self.files = {name: self._upload(name, content) for name, content in documents.items()}
        personas = self._personas()
        project = self._project(personas["Lease and tenancy"])
        return {
            "project": f"/projects/{project}/",
            **self._case(project),
            **self._compared(),
            **self._summarised(project, personas["Contract reader"]),
            **self._read_whole(),
            **self._tasks(personas["Lease and tenancy"]),
            "persona-shares": f"/personas/{personas['Lease and tenancy']}/shares/",
            "personas": "/personas/",
            "opinion": f"/files/{self.files['Expert opinion Nyberg.pdf']}/",
            "usage": "/usage/",
        }

    def _upload(self, name: str, content: bytes) -> str:
        upload = str(self.caller.http.post("files/", files={"file": (name, content)}).json()["id"])
        until(lambda: self.caller.get(f"files/{upload}/")["status"] == "ready", f"{name} has been read")
        return upload

    def _personas(self) -> dict[str, str]:
        ids = {}
        for name, description, instructions, more in (
            (
                "Lease and tenancy",
                "Commercial leases: names the clause, and says what is missing.",
                "You help lawyers with commercial leases. Name the clause you rely on. Say what evidence is missing.",
                {"starter_messages": ["Which notice periods run?", "What does the landlord owe?"]},
            ),
            (
                "Contract reader",
                "Goes through a contract with you, clause by clause.",
                "Explain one clause at a time in two or three sentences. Name dates and amounts.",
                {"budget_profile": self.profile},
            ),
            ("Letters", "Drafts letters in the tone of the firm.", "Write plainly. No phrases.", {}),
            ("Deadlines", "Finds deadlines in a file and puts them into the planner.", "List dates and sources.", {}),
        ):
            body = {"name": name, "description": description, "instructions": instructions, **WORKSPACE, **more}
            ids[name] = str(self.caller.post("personas/", body, expect=201)["id"])
        shares = f"personas/{ids['Lease and tenancy']}/shares/"
        self.caller.post(shares, {"username": "david.okafor", "role": "editor"}, expect=201)
        self.caller.post(shares, {"username": "mira.halonen", "role": "reader"}, expect=201)
        self.caller.post(shares, {"group": self.groups["Tenancy team"], "role": "reader"}, expect=201)
        return ids

    def _project(self, persona: str) -> str:
        body = {
            "name": "Meridian ./. Nordhafen",
            "instructions": "We act for Meridian Foods, the tenant. The failure was on 24 October 2026.",
            "persona": persona,
        }
        project = str(self.caller.post("projects/", body, expect=201)["id"])
        for name, file in self.files.items():
            pinned = name.startswith(PINNED_FILES)
            self.caller.post(f"projects/{project}/files/", {"file": file, "pinned": pinned}, expect=201)
        for name in ("Baltic Ship Supply: terms", "Estate of H. Lorenzen"):
            self.caller.post("projects/", {"name": name}, expect=201)
        return project

    def _ask(self, place: str, question: str, answer: str, **more: Any) -> Any:
        self.say(DEFAULT, {"text": answer})
        turn = self.caller.post(f"conversations/{place}/turns/", {"text": question, **more})["turns"][0]
        return self.caller.ended(turn["id"])

    def _title(self, place: str, title: str, *tags: str) -> None:
        response = self.caller.http.patch(f"conversations/{place}/", json={"title": title, "tags": tags})
        assert response.status_code == 200, response.text

    def _case(self, project: str) -> dict[str, str]:
        """The conversation about the claim, and others around it."""
        questions = sections("case")
        for title, tag in COLLEAGUES:
            self.caller.post("conversations/", {"title": title, "tags": [tag]}, expect=201)
        place = str(self.caller.post("conversations/", {"project": project}, expect=201)["id"])
        turns = [self._ask(place, question, answer) for question, answer in questions]
        self._title(place, "Meridian: what can we claim?", "meridian")
        self.caller.http.patch(f"conversations/{place}/", json={"pinned": True})
        return {
            "case": f"/c/{place}/",
            "case-sources": f"/c/{place}/sources/",
            "case-share": f"/c/{place}/share/",
            "case-report": f"/turns/{turns[-1]['id']}/report/",
        }

    def _compared(self) -> dict[str, str]:
        place = self.caller.conversation()
        versions = dict(sections("compared"))
        for name, text in versions.items():
            self.say(name, {"text": text})
        body = {"text": COMPARED, "models": [self.models[name] for name in versions]}
        for turn in self.caller.post(f"conversations/{place}/turns/", body)["turns"]:
            self.caller.ended(turn["id"])
        self._title(place, "Two sentences to the landlord", "meridian")
        return {"compared": f"/c/{place}/"}

    def _summarised(self, project: str, persona: str) -> dict[str, str]:
        place = str(self.caller.post("conversations/", {"project": project, "persona": persona}, expect=201)["id"])
        for (clause, answer), text in zip(sections("clauses"), quoted_clauses(), strict=True):
            self._ask(place, f"Next: {clause[0].lower()}{clause[1:]}.\n\n{text}", answer)
        self._title(place, "The lease, clause by clause", "meridian")
        self.say(DEFAULT, {"text": text_of("summary")})
        self.caller.post(f"conversations/{place}/summarise/")
        summary = f"conversations/{place}/summary/"
        until(lambda: self.caller.http.get(summary).status_code == 200, "the summary is written")
        return {"summarised": f"/c/{place}/"}

    def _read_whole(self) -> dict[str, str]:
        self.say(DEFAULT, {"text": text_of("reading")})
        files = [self.files[name] for name in ("Minutes 12 November.docx", "Temperatures October.xlsx")]
        body = {
            "file": self.files["Expert opinion Nyberg.pdf"],
            "files": files,
            "question": READING,
            "model": self.models[DEFAULT],
        }
        calls = self.caller.post("readings/plan/", body, expect=200)["calls"]
        reading = self.caller.post("readings/", {**body, "calls": calls})["id"]
        until(lambda: self.caller.get(f"readings/{reading}/")["status"] == "done", "the files are read")
        return {"reading": f"/readings/{reading}/"}

    def _tasks(self, persona: str) -> dict[str, str]:
        for title in ("Ask for the service reports since 2024", "Call Ms Koch about zone 4", "Invoice Lorenzen"):
            self.caller.post("tasks/", {"title": title, "level": "task"}, expect=201)
        closed = self.caller.post("tasks/", {"title": "Read the letter of 5 November", "level": "task"}, expect=201)
        self.caller.http.patch(f"tasks/{closed['id']}/", json={"status": "done"}).raise_for_status()
        body = {
            "title": "Claim letter to Nordhafen Immobilien",
            "level": "task",
            "archetype": "hybrid",
            "notes": "Clauses 7.1, 7.2 and 7.4. Ask for the meeting under 15.1.",
        }
        task = self.caller.post("tasks/", {**body, "draft": False}, expect=201)
        self.caller.post(
            "tasks/", {"title": "Meridian settled or filed", "level": "objective", "horizon": "month"}, expect=201
        )
        draft = {"tool_calls": [{"name": "draft_checklist", "arguments": {"items": CHECKLIST}}]}
        self.say(
            DEFAULT, {"steps": [draft, {"text": "I list the damage, write the letter, and ask before it goes out."}]}
        )
        run = self.caller.post(f"tasks/{task['id']}/runs/", {"persona": persona, "start": False})["id"]
        until(lambda: self.caller.get(f"runs/{run}/")["status"] == "ready", "the checklist is drafted")
        mark = {"tool_calls": [{"name": "mark_item"}]}
        self.say(
            DEFAULT,
            {"steps": [mark, {"text": "Done: clauses 7.1, 7.2 and 7.4, each amount with its page in the file."}]},
        )
        self.caller.post(f"runs/{run}/start/")
        until(lambda: self.caller.get(f"runs/{run}/")["status"] == "waiting", "the run waits for its person")
        return {
            "tasks": "/tasks/",
            "task": f"/tasks/{task['id']}/",
            "run": f"/c/{self.caller.get(f'runs/{run}/')['conversation']}/",
        }


def quoted_clauses() -> list[str]:
    """Return the parts of the lease that the long conversation quotes."""
    clauses = text_of("lease").split("### ")[2:]
    return [clause.split("\n\n", 1)[1].split("\n## ")[0].strip() for clause in (*clauses[:7], clauses[8], clauses[12])]
