from django.urls import path

from chat.ledger import views
from core.permissions import require_sign_in

urlpatterns = require_sign_in(
    [
        path("usage/", views.my_usage, name="usage"),
        path("usage.csv", views.my_usage_csv, name="usage_csv"),
    ]
)
