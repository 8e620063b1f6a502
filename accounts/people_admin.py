"""The admin of people. It invites people by links, deactivates them, signs them out and imports them from a table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import AbstractUser, Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.db.models import CASCADE, ManyToManyField, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy, gettext_noop, ngettext
from django.utils.translation import gettext as _
from unfold.forms import AdminPasswordChangeForm, UserChangeForm
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminTextareaWidget,
)

from accounts import people, services
from accounts.access.delegation import is_last_admin, outranks, require_held
from accounts.models import OpenIDProvider, PeopleGroup, User
from accounts.second_factors import services as second_factors
from core import i18n
from core.admin import CheckboxColumns, Confirmation, RowAdmin, acting_user, button, confirmation_button, display
from core.errors import ProductError
from core.net.site import site_origin
from core.sentences import Sentence

RIGHTS = {  # the words for Django's rights on the rows of a table
    "add": gettext_lazy("add"),
    "change": gettext_lazy("change"),
    "delete": gettext_lazy("delete"),
    "view": gettext_lazy("look at"),
}
KINDS = {"totp": "Authenticator app", "webauthn": "Passkey"}
MAX_AT_ONCE = 500  # people per action in the list
MAX_BYTES = 500_000  # maximum size of a table
NAMED_GROUPS = 20  # groups of each kind that the page of the import names
SIGNS_IN = gettext_noop(
    "Whether the person signs in with a password. Without a password, nobody can sign in to this account "
    "until a new link is used."
)


def refuse_in_field(require: Callable[..., None], *arguments: Any) -> None:
    """Call a check of the services, and raise its error as an error of the form field."""
    try:
        require(*arguments)
    except ProductError as error:
        raise ValidationError(str(error.sentence), code=error.code) from error


class InviteForm(forms.ModelForm[User]):
    """The form of a new person. `acting_user`: the administrator who fills it in, set by `UserAdmin.get_form`."""

    acting_user: ClassVar[AbstractUser]

    def clean_groups(self) -> Any:
        groups = self.cleaned_data["groups"]
        refuse_in_field(require_held, self.acting_user, (), groups)
        return groups


class PersonForm(UserChangeForm):
    """The form of a person; `acting_user` as in `InviteForm`."""

    acting_user: ClassVar[AbstractUser]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "password" in self.fields:
            self.fields["password"].help_text = _(
                "Passwords are stored in a form that nobody can read. “New link” lets the person choose a new one."
            )

    def clean(self) -> Any:
        cleaned = super().clean() or self.cleaned_data
        still_admin = cleaned.get("is_active", True) and cleaned.get("is_superuser", True)
        if not still_admin and is_last_admin(self.instance):
            self.add_error(None, services.LAST_ADMIN)
        return cleaned

    def clean_groups(self) -> Any:
        groups = self.cleaned_data["groups"]
        refuse_in_field(require_held, self.acting_user, (), set(groups) ^ set(self.instance.groups.all()))
        return groups

    def clean_user_permissions(self) -> Any:
        permissions = self.cleaned_data["user_permissions"]
        refuse_in_field(require_held, self.acting_user, set(permissions) ^ set(self.instance.user_permissions.all()))
        return permissions


class SetPasswordForm(AdminPasswordChangeForm):
    """The form of a person's password; `acting_user` as in `InviteForm`."""

    acting_user: ClassVar[AbstractUser]
    usable_password_help_text = SIGNS_IN

    def save(self, commit: bool = True) -> Any:
        person = super().save(commit=False)
        services.save_password(user=self.acting_user, person=person)
        return person


class SignOutForm(Confirmation):
    tokens = forms.BooleanField(
        label="Revoke their API tokens, too",
        required=False,
        help_text="Programs that use them are refused from now on. This cannot be undone.",
    )


class TableForm(forms.Form):
    """A table of people, pasted or uploaded as a file. If it has errors, the form shows it again as text."""

    file = forms.FileField(label=gettext_lazy("File"), required=False, widget=UnfoldAdminFileFieldWidget)
    text = forms.CharField(
        label=gettext_lazy("Or paste it here"), required=False, widget=UnfoldAdminTextareaWidget(attrs={"rows": 12})
    )

    def clean(self) -> Any:
        """Put the table into `text`, even if it came as a file."""
        cleaned = super().clean() or self.cleaned_data
        file: UploadedFile[bytes] | None = cleaned.get("file")
        if file is None:
            return cleaned
        if (file.size or 0) > MAX_BYTES:
            raise ValidationError(gettext("The file has more than 500 kB. Split it, and import the parts one by one."))
        try:
            cleaned["text"] = file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            sentence = gettext("The file is not written in UTF-8. Save it as “CSV UTF-8” and choose it again.")
            raise ValidationError(sentence) from error
        self.data = {**self.data.dict(), "text": cleaned["text"]}  # type: ignore[attr-defined]  # it was posted
        return cleaned


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("active", _("Active")), ("invited", _("Invited, has not signed in")), ("off", _("Deactivated"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        invited = Q(password__startswith=UNUSABLE_PASSWORD_PREFIX, last_login=None)
        if self.value() == "active":
            return queryset.filter(is_active=True).exclude(invited)
        if self.value() == "invited":
            return queryset.filter(invited, is_active=True)
        return queryset.filter(is_active=False) if self.value() == "off" else queryset


class PeopleGroupFilter(admin.SimpleListFilter):
    title = "group of people"
    parameter_name = "people_group"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = PeopleGroup.objects.filter(everyone=False).values_list("pk", "name")
        return [(str(pk), name) for pk, name in rows]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(people_groups=self.value()) if self.value() else queryset


class RightsField(forms.ModelMultipleChoiceField[Permission]):
    """A field of rights, with their names in the reader's language; Django stores English names."""

    def label_from_instance(self, obj: Any) -> str:
        kind = obj.content_type
        action = RIGHTS.get(obj.codename.removesuffix(f"_{kind.model}"))
        return f"{kind.app_labeled_name} | {action or obj.name}"


class RightsAdmin(RowAdmin):
    """An admin with a field of rights. It offers rights on the models of this admin, and other rights in use."""

    def formfield_for_manytomany(self, db_field: ManyToManyField[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        # Checkboxes in place of Django's two lists, since they fit a phone and are in the reader's language.
        kwargs["widget"] = CheckboxColumns()
        if db_field.remote_field.model is Permission:
            kinds = ContentType.objects.get_for_models(*self.admin_site._registry).values()
            in_use = Permission.objects.filter(Q(user__isnull=False) | Q(group__isnull=False))
            rows = Permission.objects.filter(Q(content_type__in=kinds) | Q(pk__in=in_use))
            kwargs |= {"form_class": RightsField, "queryset": rows.select_related("content_type")}
        return super().formfield_for_manytomany(db_field, request, **kwargs)


class UserAdmin(DjangoUserAdmin[User], RightsAdmin):  # type: ignore[misc]  # both annotate the same attributes
    """The admin of people. `workspace.administration` registers it, with acts that need other apps."""

    form = PersonForm
    add_form = InviteForm
    add_form_template = "admin/accounts/user/invite.html"
    change_password_form = SetPasswordForm
    list_display = ("username", "get_full_name", "email", "state", "role", "last_login")
    list_filter = (StateFilter, PeopleGroupFilter, "is_staff", "is_superuser", "groups")
    search_help_text = "A part of a user name, a name or an e-mail address"
    fieldsets = (
        (None, {"fields": ("username", "password", "second_factors", "providers")}),
        ("Person", {"fields": ("first_name", "last_name", "email", "timezone", "language", "theme")}),
        ("May", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("What is kept", {"fields": ("legal_hold",)}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets: Any = ((None, {"fields": ("username", "email", "first_name", "last_name", "groups")}),)
    readonly_fields = ("last_login", "date_joined", "second_factors", "providers")
    actions = ("link_selected", "sign_out_selected", "deactivate_selected", "activate_selected")
    actions_list: Any = ("import_table",)
    actions_detail: Any = ("new_link", "sign_out", "reset_second_factors")

    @display(description="State", label={"active": "success", "invited": "info", "deactivated": "danger"})
    def state(self, person: User) -> str:
        if not person.is_active:
            return "deactivated"
        return "active" if person.has_usable_password() or person.last_login else "invited"

    @display(description="Second factors")
    def second_factors(self, person: User) -> str:
        return ", ".join(i18n.label(KINDS[row.type]) for row in second_factors.factors_of(person)) or _("none")

    @display(description="Signs in through")
    def providers(self, person: User) -> str:
        issuers = person.openid_identities.values_list("issuer", flat=True)
        names = dict(OpenIDProvider.objects.filter(issuer__in=issuers).values_list("issuer", "name"))
        return ", ".join(names.get(issuer, issuer) for issuer in issuers) or "–"

    @display(description="Role", label={"administrator": "primary", "staff": "info"})
    def role(self, person: User) -> str | None:
        if person.is_superuser:
            return "administrator"
        return "staff" if person.is_staff else None

    @display(description="Name", ordering="first_name")
    def get_full_name(self, person: User) -> str:
        return person.get_full_name() or "–"

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.acting_user = acting_user(request)
        return form

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        pages = copy(self)  # Django passes the form no request
        form: Any = type("SetPasswordForm", (SetPasswordForm,), {"acting_user": acting_user(request)})
        pages.change_password_form = form
        return super(UserAdmin, pages).user_change_password(request, id, form_url)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.readonly_fields if acting_user(request).is_superuser else (*self.readonly_fields, "is_superuser")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may change this person; Django checks this before it sets a password, too."""
        person = self._person(obj)
        return super().has_change_permission(request, person) and not (
            person and outranks(person, acting_user(request))
        )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        person = self._person(obj)
        return super().has_delete_permission(request, person) and not (
            person and outranks(person, acting_user(request))
        )

    def has_invite_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_add_permission(request) and super().has_change_permission(request)

    def _person(self, row_or_id: Any) -> User | None:
        """Return the person for a row or an id. Unfold passes an id instead of a row."""
        if row_or_id is None or isinstance(row_or_id, User):
            return row_or_id
        try:
            return User.objects.filter(pk=row_or_id).first()
        except ValidationError:
            return None

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        if change:
            services.save_user(user=acting_user(request), person=obj)
        else:
            people.invite(user=acting_user(request), person=obj, groups=form.cleaned_data["groups"])

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        if change:
            services.set_rights(
                user=acting_user(request),
                person=form.instance,
                groups=form.cleaned_data["groups"],
                permissions=form.cleaned_data["user_permissions"],
            )

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: Any = None) -> HttpResponse:
        return self._links(request, [(obj, people.links.make_token(obj))])

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_user(user=acting_user(request), person=obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return how many rows are deleted with these people. The rows themselves are private and may be many."""
        people = User.objects.filter(pk__in=[person.pk for person in objs])
        counts: dict[Any, int] = {self.opts.verbose_name_plural: len(objs)}
        for relation in User._meta.related_objects:
            if relation.on_delete is CASCADE:
                rows = relation.related_model._default_manager.filter(Q((f"{relation.field.name}__in", people)))
                counts[relation.related_model._meta.verbose_name_plural] = rows.count()
        listed = [f"{i18n.grouped(number)} {name}" for name, number in counts.items() if number]
        may = all(self.has_delete_permission(request, person) for person in objs)
        needed = set() if may else {self.opts.verbose_name}
        return listed, counts, needed, []

    # One person

    @button("New link", icon="link")
    def new_link(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for confirmation, then create a new link. Only a POST creates one."""
        person = self.row(request, object_id)
        if request.method == "POST":
            key = people.create_key(user=acting_user(request), person=person)
            return self._links(request, [(person, key)])
        return self.page(request, "link", _("A new link for %(name)s") % {"name": person}, {"person": person})

    @confirmation_button(
        "Sign out everywhere",
        icon="logout",
        ask="Sign this person out everywhere?",
        explain="Every browser is signed out, and the open connections of pages and programs are closed at once.",
        form=SignOutForm,
    )
    def sign_out(self, request: HttpRequest, form: SignOutForm, object_id: str) -> HttpResponse:
        person = self.row(request, object_id)
        try:
            people.sign_out(user=acting_user(request), person=person, tokens=form.cleaned_data["tokens"])
        except ProductError as error:
            return self.back(request, person, error.sentence, messages.ERROR)
        if form.cleaned_data["tokens"]:
            return self.back(
                request, person, Sentence("“{person}” is signed out everywhere. The tokens are revoked.", person=person)
            )
        return self.back(request, person, Sentence("“{person}” is signed out everywhere.", person=person))

    @confirmation_button(
        "Remove second factors",
        icon="phonelink_erase",
        ask="Remove this person's second factors?",
        explain="Use this for a person who has lost all of them, and make sure that this person asked for it. Their "
        "app, passkeys and recovery codes stop working, every browser is signed out, and the password alone is enough.",
    )
    def reset_second_factors(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        person = self.row(request, object_id)
        try:
            second_factors.reset(user=acting_user(request), person=person)
        except ProductError as error:
            return self.back(request, person, error.sentence, messages.ERROR)
        return self.back(request, person, Sentence("The second factors of “{person}” are removed.", person=person))

    # Many

    @admin.action(description="Make new links", permissions=["change"])
    def link_selected(self, request: HttpRequest, rows: QuerySet[User]) -> HttpResponse | None:
        keys: list[tuple[User, str]] = []

        def make(person: User) -> None:
            keys.append((person, people.create_key(user=acting_user(request), person=person)))

        self._each(request, rows, make, gettext_noop("Links were made for {}."))
        return self._links(request, keys) if keys else None

    @admin.action(description="Sign out everywhere", permissions=["change"])
    def sign_out_selected(self, request: HttpRequest, rows: QuerySet[User]) -> None:
        def act(person: User) -> None:
            people.sign_out(user=acting_user(request), person=person)

        self._each(request, rows, act, gettext_noop("{} were signed out everywhere."))

    @admin.action(description="Deactivate", permissions=["change"])
    def deactivate_selected(self, request: HttpRequest, rows: QuerySet[User]) -> None:
        def act(person: User) -> None:
            people.set_active(user=acting_user(request), person=person, active=False)

        self._each(request, rows, act, gettext_noop("{people} were deactivated, and signed out everywhere."))

    @admin.action(description="Activate", permissions=["change"])
    def activate_selected(self, request: HttpRequest, rows: QuerySet[User]) -> None:
        def act(person: User) -> None:
            people.set_active(user=acting_user(request), person=person, active=True)

        self._each(request, rows, act, gettext_noop("{people} were activated."))

    def _each(self, request: HttpRequest, rows: QuerySet[User], act: Callable[[User], None], template: str) -> None:
        """Act on each person in a separate transaction, and name the refused people with the reasons.

        `template`: the message about the others, with `{people}`.
        """
        chosen = list(rows[: MAX_AT_ONCE + 1])
        done = 0
        if len(chosen) > MAX_AT_ONCE:
            sentence = Sentence(
                "Nothing was done. Choose at most {most_at_once} people at once.", most_at_once=MAX_AT_ONCE
            )
            self.message_user(request, sentence, messages.ERROR)
            return
        refused: dict[Sentence, list[str]] = {}
        for person in chosen:
            try:
                with transaction.atomic():
                    act(person)
            except ProductError as error:
                refused.setdefault(error.sentence, []).append(str(person))
            else:
                done += 1
        if done:
            number = ngettext("%(count)d person", "%(count)d people", done) % {"count": done}
            self.message_user(request, Sentence(template, people=number), messages.SUCCESS)
        for reason, names in refused.items():
            named = ", ".join(names[:5])
            more = len(names) - 5
            left_out = Sentence("Left out: {named}. {sentence}", named=named, sentence=reason)
            if more > 0:
                left_out = Sentence(
                    "Left out: {named} and {more} more. {sentence}", named=named, more=more, sentence=reason
                )
            self.message_user(request, left_out, messages.ERROR)

    @button("Import from a table", icon="upload", permission="invite")
    def import_table(self, request: HttpRequest) -> HttpResponse:
        form = TableForm(request.POST, request.FILES) if request.method == "POST" else TableForm()
        errors: Sequence[people.LineError] = ()
        if form.is_bound and form.is_valid():
            try:
                result = people.import_people(user=acting_user(request), text=form.cleaned_data["text"])
            except people.LinesRefused as error:
                errors = error.errors
                form.add_error(None, str(error.sentence))
            except ProductError as error:
                form.add_error(None, str(error.sentence))
            else:
                if result.existing:
                    sentence = Sentence("People who have an account already: {count}.", count=len(result.existing))
                    self.message_user(request, sentence, messages.INFO)
                return self._links(request, result.keys)
        rights = Group.objects.order_by("name").values_list("name", flat=True)[:NAMED_GROUPS]
        groups = PeopleGroup.objects.filter(everyone=False).values_list("name", flat=True)[:NAMED_GROUPS]
        context = {"form": form, "wrong": errors, "groups": groups, "rights": rights, "most": people.MAX_LINES}
        page = self.page(request, "import", _("Import people from a table"), context)
        page.status_code = 422 if form.errors else 200
        return page

    def _links(self, request: HttpRequest, keys: Iterable[tuple[User, str]]) -> HttpResponse:
        """Mail the links if a mail server is set. Return the page of the other links, which no page shows again."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        links = [
            (person, site_origin(request) + reverse("welcome", args=[person.pk], query={"key": key}))
            for person, key in keys
        ]
        title = (
            _("A link for %(name)s") % {"name": links[0][0]}
            if len(links) == 1
            else _("Links for %(count)d people") % {"count": len(links)}
        )
        mailed: list[User] = []
        try:
            mailed = people.mail_links(links)
        except ProductError as error:
            self.message_user(request, error.sentence, messages.ERROR)
        shown = [each for each in links if each[0] not in mailed]
        context = {"links": shown, "mailed": mailed, "days": settings.PASSWORD_RESET_TIMEOUT // 86_400}
        return self.page(request, "links", title, context)

    def page(self, request: HttpRequest, name: str, title: str, context: Mapping[str, object]) -> HttpResponse:
        frame = {**self.admin_site.each_context(request), "title": title, "opts": self.opts}
        return TemplateResponse(request, f"admin/accounts/user/{name}.html", {**context, **frame})
