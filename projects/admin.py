"""Admin of projects, with their members and files, and of invitations."""

from typing import Any, ClassVar, cast

from django import forms
from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_noop
from unfold.admin import TabularInline
from unfold.widgets import UnfoldAdminFileFieldWidget

from accounts.models import User
from core.admin import RecordAdmin, RowAdmin, acting_user, column, display
from core.admin_choices import RowSelectMixin
from core.errors import ProductError
from core.permissions import has_right
from files.services import require_storage
from personas.forms import prompt_text_field, validate_variables
from personas.models import Persona
from projects import members, services
from projects.handing_over import hand_over_project
from projects.models import Invitation, Membership, Project, ProjectFile

INSTRUCTIONS = gettext_noop(
    "Every prompt of its conversations contains them, after the system prompt and the persona. Variables are replaced: "
    "{{date}}, {{weekday}}, {{user.name}}, {{user.language}}, {{persona.name}}, {{project.name}}, {{model.name}}."
)

FILE = gettext_noop("It is read in the background. It belongs to the project's owner, as if they had uploaded it.")


class ProjectForm(forms.ModelForm[Project]):
    """Form of a project. `based_on`: the version of the instructions when the form was opened."""

    instructions = prompt_text_field(services.MAX_INSTRUCTIONS, required=False, help_text=INSTRUCTIONS)
    file = forms.FileField(required=False, label="Add a file", help_text=FILE, widget=UnfoldAdminFileFieldWidget())
    based_on = forms.IntegerField(required=False, widget=forms.HiddenInput())

    class Meta:
        model = Project
        fields: ClassVar = ["name", "icon", "colour", "instructions", "persona", "owner", "web", "findable"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        new = self.instance._state.adding
        if "persona" in self.fields:  # administrators with only the right to view get no fields
            rows = Persona.objects.filter(visibility=Persona.Visibility.WORKSPACE)
            if not new:
                chosen: Any = self.instance.persona_id
                rows = Persona.objects.visible_to(self.instance.owner) | Persona.objects.filter(pk=chosen)
            cast("forms.ModelChoiceField[Persona]", self.fields["persona"]).queryset = rows.distinct()
        self.initial["based_on"] = None if new else self.instance.version

    def clean_instructions(self) -> str:
        return validate_variables(self.cleaned_data["instructions"])

    def clean_file(self) -> Any:
        """Show next to the field that the owner has no storage left, so that the rest of the form is kept."""
        content = self.cleaned_data["file"]
        owner = self.cleaned_data.get("owner")
        if content and owner:
            try:
                require_storage(owner, content.size)
            except ProductError as error:
                raise forms.ValidationError(str(error.sentence), code=error.code) from error
        return content

    def clean(self) -> None:
        super().clean()
        based_on = self.cleaned_data.get("based_on")
        if not self.instance._state.adding and based_on not in (None, self.instance.version):
            raise forms.ValidationError(
                gettext(
                    "Somebody else changed the instructions while you were writing. Copy your text, open the project "
                    "again, and merge both versions."
                )
            )


class ProjectInline(RowSelectMixin, TabularInline):  # type: ignore[misc]  # Unfold's own bases differ in the same way
    """Rows of a project. The right to change the project includes the right to change its rows."""

    extra = 0
    hide_title = True

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Label the field for screen readers, which do not read the header of its column."""
        field: Any = super().formfield_for_dbfield(db_field, request, **kwargs)
        if field is not None:
            field.widget.attrs["aria-label"] = str(field.label)
        return field

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(acting_user(request), "view", Project)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(acting_user(request), "change", Project) or has_right(acting_user(request), "add", Project)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(acting_user(request), "change", Project)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(acting_user(request), "change", Project)


class MembershipInline(ProjectInline):
    model = Membership
    fields = ("user", "group", "role")
    autocomplete_fields = ("user", "group")
    verbose_name = "member"
    verbose_name_plural = "Members besides the owner"


class ProjectFileInline(ProjectInline):
    """Files of a project. A file is added in the form of the project."""

    model = ProjectFile
    verbose_name_plural = "Files"
    fields = ("name", "state", "tokens", "owner", "pinned")
    readonly_fields = ("name", "state", "tokens", "owner")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ProjectFile]:
        rows: QuerySet[ProjectFile] = super().get_queryset(request)
        return rows.select_related("file__owner")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @display(description="File")
    def name(self, entry: ProjectFile) -> str:
        return entry.file.name

    @display(description="State")
    def state(self, entry: ProjectFile) -> str:
        return str(entry.file.get_status_display())

    @display(description="Tokens")
    def tokens(self, entry: ProjectFile) -> str:
        return f"{entry.file.token_count:,}" if entry.file.token_count is not None else "–"

    @display(description="Whose")
    def owner(self, entry: ProjectFile) -> str:
        return str(entry.file.owner)


@admin.register(Project)
class ProjectAdmin(RowAdmin):
    """Projects without their conversations. Opening another user's project is recorded in its history."""

    empty_words = "No projects yet."
    form = ProjectForm
    inlines = (MembershipInline, ProjectFileInline)
    list_display = ("name", "owner", "persona", "members", "files", "web", "version", "updated")
    list_select_related = ("owner", "persona")
    list_filter = ("web",)
    search_fields = ("name", "=id", "=owner__username")
    search_help_text = "A name, the id of a project, or a user name"
    autocomplete_fields = ("owner",)
    fields = ("name", "icon", "colour", "owner", "persona", "web", "findable", "instructions", "file", "based_on")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Project]:
        rows: QuerySet[Project] = super().get_queryset(request)
        return rows.annotate(
            member_count=Count("memberships", distinct=True), file_count=Count("entries", distinct=True)
        )

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields if self.has_change_permission(request, obj) else self.fields[:-2]

    def get_changeform_initial_data(self, request: HttpRequest) -> Any:
        return {"owner": acting_user(request).pk, **super().get_changeform_initial_data(request)}

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:
        response = super().change_view(request, object_id, form_url, extra_context)
        project = self.get_object(request, object_id) if request.method == "GET" else None
        if project is not None and project.owner_id != acting_user(request).pk:
            services.record_opened(user=acting_user(request), project=project)
        return response

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        user = cast("User", acting_user(request))
        cleaned = form.cleaned_data
        fields: services.ProjectFields = {
            "name": cleaned["name"],
            "icon": cleaned["icon"],
            "colour": cleaned["colour"],
            "instructions": cleaned["instructions"],
            "persona": cleaned["persona"],
            "web": cleaned["web"],
            "findable": cleaned["findable"],
        }
        if not change:
            project = services.create_project(user=user, fields=fields, owner=cleaned["owner"])
        else:
            project = Project.objects.select_related("owner").get(pk=obj.pk)
            services.update_project(user=user, project=project, fields=fields, based_on=cleaned["based_on"])
            if project.owner != cleaned["owner"]:
                hand_over_project(user=user, project=project, to=cleaned["owner"])
        obj.pk = project.pk
        obj.refresh_from_db()
        content = cleaned.get("file")
        if content:
            services.add_file_for_owner(user=user, project=obj, name=content.name, content=content)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: Any) -> None:
        user = cast("User", acting_user(request))
        project = form.instance
        formset.save(commit=False)
        for row in formset.deleted_objects:
            if isinstance(row, Membership):
                members.remove_member(user=user, project=project, member=row.holder)
            else:
                services.remove_file(user=user, project=project, file=row.file_id)
        for row in [*formset.new_objects, *(changed for changed, _fields in formset.changed_objects)]:
            if isinstance(row, Membership):
                _set_member(user, project, row)
            else:
                services.change_file(user=user, project=project, file=row.file_id, pinned=row.pinned)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_project(user=cast("User", acting_user(request)), project=obj)

    @display(description="Members", ordering="member_count")
    def members(self, project: Project) -> str:
        return str(getattr(project, "member_count", 0))

    @display(description="Files", ordering="file_count")
    def files(self, project: Project) -> str:
        return str(getattr(project, "file_count", 0))


def _set_member(user: User, project: Project, row: Membership) -> None:
    """Store a row of the form. A changed user or group replaces the previous member."""
    previous = Membership.objects.filter(pk=row.pk).first()
    if previous is not None and previous.holder != row.holder:
        members.remove_member(user=user, project=project, member=previous.holder)
    if row.user is not None:
        members.add_member(user=user, project=project, person=row.user, role=row.role)
    else:
        members.add_group(user=user, project=project, group=row.group_id, role=row.role)


@admin.register(Invitation)
class InvitationAdmin(RecordAdmin):
    empty_words = "Nobody was invited to a project yet."
    ordering = ("-id",)
    list_display = ("created", "of_project", "person", "role", "expires", "declined")
    list_select_related = ("person",)
    list_filter = ("role",)
    search_fields = ("=id", "=project__id", "=person__username")
    search_help_text = "An id, the id of a project, or a user name"
    fields = ("id", "of_project", "person", "role", "created", "expires", "declined")
    of_project = column("project_id", "Project")
