"""The admin page of a person, extended with the actions that need projects and personas: hand over and erase."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.widgets import UnfoldAdminTextInputWidget

from accounts.models import User
from accounts.people_admin import UserAdmin
from core.admin import Confirmation, acting_user, button, confirmation_button, htmx_redirect
from core.errors import ProductError
from core.permissions import has_right
from core.sentences import Sentence
from personas.models import Persona
from projects.handing_over import Possessions, count_possessions, hand_over
from projects.models import Project
from workspace.administration.erasing import erase_person


class HandOverForm(forms.Form):
    to = forms.CharField(label=_("User name of the new owner"), max_length=150, widget=UnfoldAdminTextInputWidget)


class EraseForm(Confirmation):
    sure = forms.BooleanField(label="I know that this cannot be undone")


@admin.register(User)
class PeopleAdmin(UserAdmin):
    actions_detail: Any = (*UserAdmin.actions_detail, "hand_over", "erase")

    def has_hand_over_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        kinds = (Project, Persona)
        return self.has_change_permission(request, obj) and all(
            has_right(acting_user(request), "change", kind) for kind in kinds
        )

    @button("Hand over what they own", icon="move_group", permission="hand_over")
    def hand_over(self, request: HttpRequest, object_id: str) -> HttpResponse:
        person = self.row(request, object_id)
        form = HandOverForm(request.POST if request.method == "POST" else None)
        if form.is_bound and form.is_valid():
            try:
                moved, new_owner = hand_over(user=acting_user(request), person=person, to=form.cleaned_data["to"])
            except ProductError as error:
                form.add_error("to", str(error.sentence))
            else:
                self.message_user(
                    request,
                    Sentence("“{taker}” owns {moved} now.", taker=str(new_owner), moved=_in_words(moved)),
                    messages.SUCCESS,
                )
                return HttpResponseRedirect(reverse("admin:accounts_user_change", args=[person.pk]))
        context = {"form": form, "person": person, "owned": _in_words(count_possessions(person))}
        page = self.page(request, "hand_over", _("Hand over what %(name)s owns") % {"name": person}, context)
        page.status_code = 422 if form.errors else 200
        return page

    @confirmation_button(
        "Erase",
        icon="delete_forever",
        permission="delete",
        ask="Erase this person?",
        explain="The account is deleted with all conversations, files, projects, personas and tasks of the person. The "
        "audit names the person only by id. This cannot be undone. First hand over the items that must stay.",
        form=EraseForm,
    )
    def erase(self, request: HttpRequest, form: EraseForm, object_id: str) -> HttpResponse:
        person = self.row(request, object_id)
        try:
            erase_person(user=acting_user(request), person=person)
        except ProductError as error:
            return self.back(request, person, error.sentence, messages.ERROR)
        self.message_user(request, Sentence("The person is erased."), messages.SUCCESS)
        return htmx_redirect(reverse("admin:accounts_user_changelist"))


def _in_words(owned: Possessions) -> str:
    return ", ".join(
        [
            ngettext("%(count)d project", "%(count)d projects", owned.projects) % {"count": owned.projects},
            ngettext("%(count)d file of these", "%(count)d files of these", owned.files) % {"count": owned.files},
            ngettext("%(count)d persona", "%(count)d personas", owned.personas) % {"count": owned.personas},
        ]
    )
