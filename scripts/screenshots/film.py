"""The moving picture of the README: a question, its plan, the answer as it is written, and what the model saw."""

import time
from dataclasses import dataclass, field
from io import BytesIO

from PIL import Image
from playwright.sync_api import Page

from scripts.screenshots.office import DEFAULT, Office
from scripts.screenshots.pictures import OUT, Visitor
from scripts.screenshots.texts import sections

NAME = "question-plan-answer"
FRAME = 0.1  # seconds
MAX_FRAME_LENGTH = 0.25  # of the answer, on a busy machine
QUALITY = 80
QUESTION = 4  # of the questions about the case
MAX_FRAMES = 300  # of the answer
TOKEN = 0.06  # seconds between the pieces of the answer


@dataclass
class Film:
    """Frames of a page, each with the seconds for which it is shown."""

    page: Page
    frames: list[Image.Image] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def shoot(self, seconds: float = FRAME) -> None:
        """Add a frame, or show the last one longer if nothing has changed."""
        frame = Image.open(BytesIO(self.page.screenshot())).convert("RGB")
        if self.frames and frame.tobytes() == self.frames[-1].tobytes():
            self.seconds[-1] += seconds
        else:
            self.frames.append(frame)
            self.seconds.append(seconds)

    def save(self) -> None:
        first, *others = self.frames
        durations = [round(seconds * 1000) for seconds in self.seconds]
        path = OUT / f"{NAME}.webp"
        first.save(path, save_all=True, append_images=others, duration=durations, loop=0, quality=QUALITY, method=4)


def record(visitor: Visitor, office: Office, project: str) -> None:
    """Ask a question in the project of the case, and write the film of it."""
    question, answer = sections("case")[QUESTION]
    office.say(DEFAULT, {"text": answer, "ttft": 0.5, "interval": TOKEN})
    page = visitor.sign_in(scale=1)
    page.goto(f"{visitor.url}/?project={project}")
    page.wait_for_load_state("networkidle")
    film = Film(page)
    film.shoot(0.6)
    text = page.locator("textarea[name=text]")
    for end in range(4, len(question) + 4, 4):
        text.press_sequentially(question[end - 4 : end])
        film.shoot()
    page.wait_for_load_state("networkidle")
    film.shoot(1.6)
    page.get_by_role("button", name="Send").click()
    shot_at = time.monotonic()
    for _ in range(MAX_FRAMES):
        before, shot_at = shot_at, time.monotonic()
        film.shoot(min(max(shot_at - before, FRAME), MAX_FRAME_LENGTH))
        if page.locator("article.answer[data-status=done]").count():
            break
    page.wait_for_load_state("networkidle")
    film.shoot(1.2)
    page.get_by_role("link", name="What it saw").last.click()
    page.wait_for_selector("#panel-title")
    page.wait_for_load_state("networkidle")
    film.shoot(2.5)
    film.save()
