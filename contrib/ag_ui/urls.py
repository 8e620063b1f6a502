from django.urls import path

from contrib.ag_ui.api import AgUiView

urlpatterns = [path("", AgUiView.as_view(), name="ag-ui")]
