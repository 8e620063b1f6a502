"""The pages of tasks as a person without scripts sees them."""

from django.test import Client

from tests.projects.planner.planning import DAY

PAGE = f"/tasks/day/{DAY}/"


EVIL = "<script>alert(1)</script>"


def shown(browser: Client, url: str) -> str:
    response = browser.get(url)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())
