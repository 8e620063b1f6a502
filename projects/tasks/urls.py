from datetime import date

from django.urls import path, register_converter

from projects.tasks import views


class DayConverter:
    """A day as in ISO 8601; `length` is how much of it an address shows, the rest is the first day."""

    regex = r"\d{4}-\d{2}-\d{2}"
    length = 10

    def to_python(self, value: str) -> date:
        return date.fromisoformat((value + "-01-01")[:10])

    def to_url(self, value: date) -> str:
        return value.isoformat()[: self.length]


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
urlpatterns = [
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
    path("<uuid:pk>/delete/", views.delete, name="delete"),
]
