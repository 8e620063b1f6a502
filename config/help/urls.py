from django.urls import path

from config.help import views
from core.permissions import signed_in

app_name = "help"
urlpatterns = signed_in(
    [
        path("", views.index, name="index"),
        path("pictures/<str:name>", views.picture, name="picture"),
        path("<path:path>/", views.guide_page, name="page"),
    ]
)
