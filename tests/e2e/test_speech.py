"""Dictation and reading aloud, by an engine of the test's own, and by a server with the browser's made-up microphone.

A headless browser has no voice.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from files.models import SpeechServer
from tests.e2e.conftest import OpenBrowser, answer, ask, expect_complete, field, in_thread, ready
from tests.files.speech_servers import TEXT, ScriptedSpeechServer, row_of
from tests.llm.raw_server import answer as raw_answer
from tests.product import Product

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


# The headless browser of the tests has no devices. Everything behind the device is the browser's own.
MICROPHONE = """navigator.mediaDevices.getUserMedia = async () => {
  const audio = new AudioContext();
  const [tone, target] = [audio.createOscillator(), audio.createMediaStreamDestination()];
  tone.connect(target);
  tone.start();
  return target.stream;
};"""


@pytest.fixture
def served(product: Product) -> Iterator[ScriptedSpeechServer]:
    """A server of the workspace for both, instead of the browser's own engines."""

    def delete() -> None:
        SpeechServer.objects.filter(pk__in=rows).delete()

    with ScriptedSpeechServer("plain") as server:
        kinds = ("transcription", "speech")
        rows = in_thread(lambda: [row_of(server, kind, preferred=True).pk for kind in kinds])
        yield server
        in_thread(delete)


def test_a_server_of_the_workspace_writes_down_what_is_recorded_and_reads_answers(
    visit: OpenBrowser, served: ScriptedSpeechServer
) -> None:
    opened = visit()
    opened.page.add_init_script(MICROPHONE)
    page = opened.sign_in()
    ready(page)
    field(page).fill("Note:")
    dictate = page.get_by_role("button", name="Dictate")
    expect(dictate).to_have_attribute("title", "Dictate. A server of this workspace turns speech into text.")
    served.broken = raw_answer("{}", status="503 Service Unavailable")
    dictate.click()
    expect(dictate).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("status").filter(has_text="Recording: 1 s.")).to_be_visible()
    dictate.click()
    status = page.get_by_role("status").filter(has_text="press the microphone to send it again")
    expect(status).to_be_visible()
    opened.complaints.clear()  # the browser's own about the status 502
    served.broken = b""
    dictate.click()
    expect(field(page)).to_have_value(f"Note: {TEXT.strip()}")
    assert served.recordings[-1]["file"].startswith(b"\x1a\x45\xdf\xa3"), "WebM, as this browser records"

    ask(page, "Speak", text=f"First paragraph.\n\n{'A long one. ' * 60}\n\nThe end.")
    expect_complete(page)
    aloud = answer(page).get_by_role("button", name="Read aloud")
    aloud.click()
    expect(aloud).to_have_attribute("aria-pressed", "true")
    expect(aloud).to_have_attribute("aria-pressed", "false")
    assert [body["input"].split()[0] for body in served.spoken] == ["First", "A", "The"]
    aloud.click()
    expect(aloud).to_have_attribute("aria-pressed", "true")
    aloud.click()
    expect(aloud).to_have_attribute("aria-pressed", "false")
