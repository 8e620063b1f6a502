from django.urls import path

from chat.runs import views
from core.permissions import require_sign_in

urlpatterns = require_sign_in(
    [
        path("tasks/<uuid:pk>/run/", views.task_run, name="task_run"),
        path("tasks/code/<str:code>/", views.by_code, name="task_by_code"),
        path("runs/<uuid:pk>/start/", views.act, {"what": "start"}, name="run_start"),
        path("runs/<uuid:pk>/stop/", views.act, {"what": "stop"}, name="run_stop"),
        path("runs/<uuid:pk>/answer/", views.act, {"what": "answer"}, name="run_answer"),
        path("runs/<uuid:pk>/retry/", views.act, {"what": "retry"}, name="run_retry"),
        path("mentions/", views.offer, name="mentions"),
    ]
)
