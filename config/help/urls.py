from django.urls import path

from config.help import views
from core.permissions import require_sign_in

app_name = "help"
urlpatterns = require_sign_in(
    [
        path("", views.index, name="index"),
        path("pictures/<str:name>", views.picture, name="picture"),
        path("<path:path>/", views.guide_page, name="page"),
    ]
)
