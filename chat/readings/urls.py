from django.urls import path

from chat.readings import views
from core.permissions import require_sign_in

urlpatterns = require_sign_in(
    [
        path("readings/", views.readings, name="readings"),
        path("readings/<uuid:pk>/", views.reading, name="reading"),
        path("readings/<uuid:pk>/citations/<int:citation>/", views.doubt, name="reading_doubt"),
        path("readings/<uuid:pk>/stop/", views.stop, name="stop_reading"),
        path("readings/<uuid:pk>/resume/", views.resume, name="resume_reading"),
        path("readings/<uuid:pk>/remove/", views.remove, name="remove_reading"),
        path("readings/<uuid:pk>/take-along/", views.take_along, name="take_reading_along"),
        path("files/<uuid:pk>/read/", views.read_file, name="read_file"),
        path("files/<uuid:pk>/read/plan/", views.plan_file, name="plan_reading"),
    ]
)
