from django.urls import path

from core.permissions import require_sign_in
from projects import views

app_name = "projects"
urlpatterns = require_sign_in(
    [
        path("", views.projects, name="list"),
        path("sample/", views.sample, name="sample"),
        path("invitations/", views.received, name="received"),
        path("invitations/count/", views.invited, name="invited"),
        path("invitations/<uuid:pk>/accept/", views.accept, name="accept"),
        path("invitations/<uuid:pk>/decline/", views.decline, name="decline"),
        path("<uuid:pk>/settings/", views.save, name="save"),
        path("<uuid:pk>/search/", views.search, name="search"),
        path("<uuid:pk>/delete/", views.delete, name="delete"),
        path("<uuid:pk>/upload/", views.upload_files, name="upload"),
        path("<uuid:pk>/files/", views.files, name="files"),
        path("<uuid:pk>/files/choose/", views.choose, name="choose"),
        path("<uuid:pk>/files/<uuid:file>/", views.change_file, name="file"),
        path("<uuid:pk>/files/<uuid:file>/remove/", views.remove_file, name="remove_file"),
        path("<uuid:pk>/members/", views.members, name="members"),
        path("<uuid:pk>/groups/", views.add_group, name="groups"),
        path("<uuid:pk>/members/<uuid:member>/hand-over/", views.hand_over, name="hand_over"),
        path("<uuid:pk>/invitations/<uuid:invitation>/withdraw/", views.withdraw, name="withdraw"),
        path("<uuid:pk>/members/<uuid:member>/", views.change_member, name="member"),
        path("<uuid:pk>/members/<uuid:member>/remove/", views.remove_member, name="remove_member"),
    ]
)
