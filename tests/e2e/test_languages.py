"""The product in Vietnamese, and texts of people that run from right to left."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, ask, expect_complete, field, ready, status
from tests.product import Product
from tests.projects.uploads import uploaded

pytestmark = [pytest.mark.browser, pytest.mark.product]

HEBREW = "שלום, מה כתוב בחוזה?"
ARABIC = "عقد الإيجار"


def sign_in(page: Page, product: Product, person: Person) -> None:
    page.goto(product.url + "/")
    page.get_by_label("Tên người dùng").fill(person.username)
    page.get_by_label("Mật khẩu").fill(person.password)
    page.get_by_role("button", name="Đăng nhập").click()


def test_a_browser_that_asks_for_vietnamese_gets_it(visit: OpenBrowser, product: Product, person: Person) -> None:
    opened = visit(locale="vi-VN")
    page = opened.page
    sign_in(page, product, person)
    ready(page)
    expect(page.locator("html")).to_have_attribute("lang", "vi")
    expect(page.get_by_role("heading", level=1)).to_have_text("Bạn muốn biết điều gì?")
    expect(page.locator(".plan-line")).to_contain_text("Mọi thứ bạn đưa đều vừa")
    page.get_by_label("Tin nhắn của bạn").fill('Chào\nscript: {"text": "Xin chào bạn."}')
    page.get_by_role("button", name="Gửi").click()
    expect(status(page)).to_have_text("Câu trả lời đã xong, 3 từ.")
    expect(page.locator(".context-link").last).to_contain_text("Mô hình đã thấy")


def test_the_language_of_the_settings_goes_before_the_browsers(page: Page, product: Product) -> None:
    page.goto(product.url + "/settings/")
    page.get_by_label("Language").select_option("vi")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").first).to_have_text("Đã lưu.")
    expect(page.get_by_role("heading", level=1)).to_have_text("Cài đặt")


def test_an_answer_that_failed_says_why_in_the_readers_language(
    visit: OpenBrowser, product: Product, person: Person
) -> None:
    page = visit(locale="vi-VN").page
    sign_in(page, product, person)
    ready(page)
    page.get_by_label("Tin nhắn của bạn").fill('Chào\nscript: {"error": {"status": 401, "message": "no"}}')
    page.get_by_role("button", name="Gửi").click()
    expect(page.locator("p.problem").last).to_contain_text("Nhà cung cấp từ chối khóa API")


def right_to_left(place: Locator) -> None:
    expect(place.first).to_be_visible()
    assert place.first.evaluate("each => getComputedStyle(each).direction") == "rtl", place


def test_what_people_write_from_right_to_left_stands_so(page: Page, product: Product, person: Person) -> None:
    file = uploaded(person.caller, f"{ARABIC}.txt", ARABIC)
    page.goto(product.url + f"/?file={file['id']}")
    ready(page)
    right_to_left(page.locator(".chip-name"))
    field(page).fill(HEBREW)
    right_to_left(field(page))
    field(page).fill("")
    ask(page, HEBREW, text=f"{HEBREW}\n\n```python\nprint(1)\n```")
    expect_complete(page)
    place = page.url.rstrip("/").rpartition("/")[2]
    person.caller.http.patch(f"conversations/{place}/", json={"title": HEBREW})
    page.reload()
    ready(page)
    right_to_left(page.locator(".question .said"))
    right_to_left(page.locator(".answer .prose"))
    right_to_left(page.locator("#title"))
    right_to_left(page.locator("#side-list a").filter(has_text=HEBREW))
    expect(page.locator(".answer pre")).to_have_css("direction", "ltr")
    page.goto(product.url + "/files/")
    right_to_left(page.get_by_role("link", name=re.compile(ARABIC)))
