from django.urls import path, register_converter

from core.permissions import require_sign_in
from core.requests import DayConverter
from projects.planner import views


class MonthConverter(DayConverter):
    regex = r"\d{4}-\d{2}"
    length = 7


class YearConverter(DayConverter):
    regex = r"\d{4}"
    length = 4


register_converter(DayConverter, "iso_day")
register_converter(MonthConverter, "iso_month")
register_converter(YearConverter, "iso_year")

app_name = "tasks"
urlpatterns = require_sign_in(
    [
        path("", views.period, name="today"),
        path("day/<iso_day:start>/", views.period, {"horizon": "day"}, name="day"),
        path("month/<iso_month:start>/", views.period, {"horizon": "month"}, name="month"),
        path("year/<iso_year:start>/", views.period, {"horizon": "year"}, name="year"),
        path("<uuid:pk>/", views.task, name="task"),
        path("<uuid:pk>/save/", views.save, name="save"),
        path("<uuid:pk>/status/", views.status, name="status"),
        path("<uuid:pk>/order/", views.order, name="order"),
        path("<uuid:pk>/move/", views.move, name="move"),
        path("<uuid:pk>/items/", views.items, name="items"),
        path("<uuid:pk>/clear/", views.clear, name="clear"),
        path("<uuid:pk>/accept/", views.accept, name="accept"),
        path("<uuid:pk>/decline/", views.decline, name="decline"),
        path("<uuid:pk>/delete/", views.delete, name="delete"),
    ]
)
