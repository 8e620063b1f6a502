"""Dictation and reading aloud, by an engine of the test's own: a headless browser has no voice and no microphone."""

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import OpenBrowser, answer, ask, expect_complete, field, ready

pytestmark = [pytest.mark.browser, pytest.mark.product]

# As the Web Speech API has it: results grow, each says whether it is final, and `stop` leads to `end`.
ENGINE = """
class Engine extends EventTarget {
  start() { window.heard = this; }
  stop() { this.dispatchEvent(new Event("end")); }
  abort() { this.stop(); }
}
window.SpeechRecognition = Engine;
window.say = (...texts) => window.heard.dispatchEvent(Object.assign(new Event("result"), {
  resultIndex: 0,
  results: texts.map(([transcript, isFinal]) => Object.assign([{ transcript }], { isFinal })),
}));
window.spoken = [];
Object.defineProperty(window, "speechSynthesis", { value: {
  speak: (part) => window.spoken.push(part.text),
  cancel: () => { window.spoken.length = 0; },
} });
"""


def test_what_is_said_is_written_and_an_answer_is_read_aloud(visit: OpenBrowser) -> None:
    opened = visit()
    opened.page.add_init_script(ENGINE)
    page = opened.sign_in()
    ready(page)
    field(page).fill("Dear")
    dictate = page.get_by_role("button", name="Dictate")
    dictate.click()
    expect(dictate).to_have_attribute("aria-pressed", "true")
    page.evaluate("say(['not yet', false], ['Ann', true])")
    expect(field(page)).to_have_value("Dear Ann")
    page.evaluate("heard.dispatchEvent(Object.assign(new Event('error'), { error: 'not-allowed' }))")
    expect(page.get_by_role("status").filter(has_text="may not use the microphone")).to_be_visible()
    dictate.click()
    expect(dictate).to_have_attribute("aria-pressed", "false")

    ask(page, "Speak", text="First paragraph [1].\n\n- one\n- two")
    expect_complete(page)
    aloud = answer(page).get_by_role("button", name="Read aloud")
    aloud.click()
    expect(aloud).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("spoken") == ["First paragraph [1].".replace(" [1]", " "), "one", "two"]
    aloud.click()
    expect(aloud).to_have_attribute("aria-pressed", "false")
    assert page.evaluate("spoken") == []


def test_a_browser_without_speech_shows_no_button_for_it(visit: OpenBrowser) -> None:
    opened = visit()
    opened.page.add_init_script("delete window.SpeechRecognition; delete window.webkitSpeechRecognition;")
    page = opened.sign_in()
    ready(page)
    expect(page.locator("#dictate")).to_be_hidden()
