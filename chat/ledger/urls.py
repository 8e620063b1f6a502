from django.urls import path

from chat.ledger import views
from core.permissions import signed_in

urlpatterns = signed_in(
    [
        path("usage/", views.my_usage, name="usage"),
        path("usage.csv", views.my_usage_csv, name="usage_csv"),
    ]
)
