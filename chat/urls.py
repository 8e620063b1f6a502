from django.urls import path, register_converter

from chat.conversations import views as export_views
from chat.conversations import views as side_views
from chat.conversations.daily import views as daily_views
from chat.conversations.importing import views as import_views
from chat.conversations.search import views as search_views
from chat.conversations.sharing import views as share_views
from chat.runs import views as run_views
from chat.summaries import views as summary_views
from chat.web import branches as branch_views
from chat.web import conversation, file_picker, persona_plan, project_meter, source_views
from chat.web import queued_message as waiting_views
from core.lookups import DayConverter
from core.permissions import signed_in

register_converter(DayConverter, "chat_day")

app_name = "chat"
urlpatterns = [
    path("", conversation.home, name="home"),
    path("conversations/", side_views.conversations, name="list"),
    path("c/<uuid:pk>/", conversation.conversation, name="conversation"),
    path("c/<uuid:pk>/turns/", conversation.send, name="send"),
    path("c/<uuid:pk>/organise/", side_views.organise, name="organise"),
    path("c/<uuid:pk>/rename/", side_views.rename, name="rename"),
    path("c/<uuid:pk>/move/", side_views.move, name="move"),
    path("c/<uuid:pk>/archive/", side_views.archive, name="archive"),
    path("c/<uuid:pk>/delete/", side_views.delete, name="delete"),
    path("c/<uuid:pk>/restore/", side_views.restore, name="restore"),
    path("c/<uuid:pk>/share/", share_views.share, name="share"),
    path("c/<uuid:pk>/export.<str:kind>", export_views.export, name="export"),
    path("shares/", share_views.shares, name="shares"),
    path("shares/<uuid:pk>/end/", share_views.end, name="end_share"),
    path("export/", export_views.export_all, name="export_all"),
    path("import/", import_views.imports, name="imports"),
    path("import/<uuid:pk>/", import_views.one, name="import"),
    path("search/", search_views.search, name="search"),
    path("projects/<uuid:pk>/meter/", project_meter.meter, name="project_meter"),
    path("projects/<uuid:pk>/conversations/", project_meter.conversations, name="project_conversations"),
    path("personas/<uuid:pk>/plan/", persona_plan.plan, name="persona_plan"),
    path("personas/<uuid:pk>/delete/", persona_plan.delete, name="delete_persona"),
    path("starters/", persona_plan.starters, name="starters"),
    path("c/<uuid:pk>/persona/", persona_plan.change, name="change_persona"),
    path("c/<uuid:pk>/prompts/", persona_plan.offer, name="offer_prompts"),
    path("offered-prompts/", persona_plan.offer, name="offer_prompts_new"),
    path("c/<uuid:pk>/sources/", source_views.of_conversation, name="sources"),
    path("messages/<uuid:pk>/sources/", source_views.of_answer, name="answer_sources"),
    path("messages/<uuid:pk>/sources/<int:number>/", source_views.preview, name="source"),
    path("messages/<uuid:pk>/text/", source_views.as_written, name="as_written"),
    path("messages/<uuid:pk>/", conversation.message, name="message"),
    path("messages/<uuid:pk>/regenerate/", conversation.regenerate, name="retry"),
    path("messages/<uuid:pk>/edit/", branch_views.edit, name="edit"),
    path("messages/<uuid:pk>/choose/", branch_views.choose, name="choose"),
    path("messages/<uuid:pk>/continue/", branch_views.go_on, name="continue"),
    path("messages/<uuid:pk>/feedback/", branch_views.feedback, name="feedback"),
    path("messages/<uuid:pk>/delete/", branch_views.delete, name="delete_message"),
    path("plan/", conversation.plan, name="plan_new"),
    path("c/<uuid:pk>/plan/", conversation.plan, name="plan"),
    path("pick/", file_picker.pick, name="pick"),
    path("c/<uuid:pk>/pick/", file_picker.pick, name="pick"),
    path("turns/<uuid:pk>/report/", conversation.report, name="report"),
    path("turns/<uuid:pk>/stop/", conversation.stop, name="stop"),
    path("turns/<uuid:pk>/approvals/", waiting_views.approval, name="approval"),
    path("daily/", daily_views.today, name="today"),
    path("daily/<chat_day:day>/", daily_views.day, name="day"),
    path("c/<uuid:pk>/summarise/", summary_views.summarise, name="summarise"),
    path("summaries/<uuid:pk>/edit/", summary_views.edit, name="edit_summary"),
    path("summaries/<uuid:pk>/rebuild/", summary_views.rebuild, name="rebuild_summary"),
    path("summaries/<uuid:pk>/undo/", summary_views.undo, name="undo_summary"),
    path("tasks/<uuid:pk>/run/", run_views.task_run, name="task_run"),
    path("tasks/code/<str:code>/", run_views.by_code, name="task_by_code"),
    path("runs/<uuid:pk>/start/", run_views.act, {"what": "start"}, name="run_start"),
    path("runs/<uuid:pk>/stop/", run_views.act, {"what": "stop"}, name="run_stop"),
    path("runs/<uuid:pk>/answer/", run_views.act, {"what": "answer"}, name="run_answer"),
    path("runs/<uuid:pk>/retry/", run_views.act, {"what": "retry"}, name="run_retry"),
    path("mentions/", run_views.offer, name="mentions"),
    path("c/<uuid:pk>/next/", waiting_views.show, name="next"),
    path("c/<uuid:pk>/next/send/", waiting_views.send, name="send_next"),
    path("c/<uuid:pk>/next/edit/", waiting_views.edit, name="edit_next"),
    path("c/<uuid:pk>/next/remove/", waiting_views.remove, name="remove_next"),
]

# A link to a shared conversation is for whoever has it.
urlpatterns = [*signed_in(urlpatterns), path("s/<slug:token>/", share_views.shared, name="shared")]
