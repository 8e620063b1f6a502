"""The admin in the reader's language."""

import re

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from accounts.models import User
from llm.models import Provider
from personas.models import BudgetProfile, Reminder

pytestmark = pytest.mark.django_db


@pytest.fixture
def vietnamese(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("lan", language="vi"))
    return client


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_names_help_texts_and_choices_of_fields(vietnamese: Client) -> None:
    form = words(vietnamese.get(reverse("admin:personas_budgetprofile_add")).content.decode())
    for text in ("để trống cho câu trả lời", "Tính bằng token.", "Chỗ cho prompt", "Gần đây: các lượt mới nhất"):
        assert text in form or text[0].upper() + text[1:] in form
    assert "kept free for the answer" not in form.lower()


def test_columns_menu_states_and_messages(vietnamese: Client, admin_user: User) -> None:
    profile = BudgetProfile.objects.create(name="Standard", default=True)
    other = BudgetProfile.objects.create(name="Other")
    listed = words(vietnamese.get(reverse("admin:personas_budgetprofile_changelist")).content.decode())
    for text in ("Về không gian làm việc", "Công cụ", "Cửa sổ tối đa", "mặc định", "Mặc định"):
        assert text in listed
    chosen = reverse("admin:personas_budgetprofile_make_default", args=[other.pk])
    dialog = vietnamese.get(chosen).content.decode()
    assert "Đặt hồ sơ này làm mặc định?" in dialog
    vietnamese.post(chosen, {"_form_submitted": "on"})
    page = words(vietnamese.get(reverse("admin:personas_budgetprofile_change", args=[profile.pk])).content.decode())
    assert "Other nay là hồ sơ mặc định." in page


def test_the_overview_and_the_pages_of_people(vietnamese: Client, admin_user: User) -> None:
    page = words(vietnamese.get("/admin/").content.decode())
    for text in ("Tổng quan", "Token đã đọc", "Những gì thất bại", "Mọi thứ có ổn không?", "Tải lên, 0 tệp"):
        assert text in page
    handed = vietnamese.get(reverse("admin:accounts_user_hand_over", args=[admin_user.pk])).content.decode()
    assert "Chuyển giao những gì admin sở hữu" in handed and "0 dự án, 0 tệp trong đó, 0 nhân vật" in handed


def test_every_page_of_a_table_is_made(vietnamese: Client) -> None:
    Provider.objects.create(name="P")
    Reminder.objects.create(text="Be kind.")
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert vietnamese.get(reverse(f"{name}_changelist")).status_code in (200, 302)
        assert vietnamese.get(reverse(f"{name}_add")).status_code in (200, 302, 403)


def test_the_description_of_the_api_is_in_english_for_everybody(vietnamese: Client) -> None:
    answer = vietnamese.get("/api/v1/schema/?format=json", headers={"Accept-Language": "vi"})
    assert "The name of the uploaded file." in answer.content.decode()
