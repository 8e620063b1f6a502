from django.urls import path, register_converter

from accounts.access.page_throttle import limited
from chat.conversations import team_shares_views as team_shares
from chat.conversations import views as conversations
from chat.ledger import urls as ledger_urls
from chat.memory import urls as memory_urls
from chat.readings import urls as reading_urls
from chat.runs import urls as run_urls
from chat.summaries import views as summary_views
from chat.web import (
    branches,
    conversation,
    diagrams,
    file_picker,
    palette,
    persona_and_project,
    previews,
    project_page,
    sources,
)
from core.permissions import require_sign_in
from core.requests import DayConverter

register_converter(DayConverter, "chat_day")

app_name = "chat"
urlpatterns = [
    path("", conversation.home, name="home"),
    path("conversations/", conversations.conversations, name="list"),
    path("c/<uuid:pk>/", conversation.conversation, name="conversation"),
    path("c/<uuid:pk>/turns/", conversation.send, name="send"),
    path("c/<uuid:pk>/organise/", conversations.organise, name="organise"),
    path("c/<uuid:pk>/permissions/<uuid:permission>/", conversations.forget, name="forget_permission"),
    path("conversations/chosen/", conversations.chosen, name="chosen"),
    path("conversations/chosen/export/", conversations.export_several, name="export_several"),
    path("conversations/restore/", conversations.restore_several, name="restore_several"),
    path("c/<uuid:pk>/tags/", conversations.tag, name="tag"),
    path("c/<uuid:pk>/tasks/", conversations.show_tasks, name="show_tasks"),
    path("c/<uuid:pk>/pin/", conversations.pin, name="pin"),
    path("c/<uuid:pk>/rename/", conversations.rename, name="rename"),
    path("c/<uuid:pk>/move/", conversations.move, name="move"),
    path("c/<uuid:pk>/archive/", conversations.archive, name="archive"),
    path("c/<uuid:pk>/delete/", conversations.delete, name="delete"),
    path("c/<uuid:pk>/restore/", conversations.restore, name="restore"),
    path("c/<uuid:pk>/share/", conversations.share, name="share"),
    path("c/<uuid:pk>/team-shares/", team_shares.team_shares, name="team_shares"),
    path("team-shares/<uuid:pk>/end/", team_shares.end, name="end_team_share"),
    path("shared-with-me/", team_shares.received, name="received"),
    path("shared-with-me/<uuid:pk>/", team_shares.read, name="received_share"),
    path("shared-with-me/<uuid:pk>/copy/", team_shares.copy, name="copy_shared"),
    path("c/<uuid:pk>/export.<str:kind>", conversations.export, name="export"),
    path("shares/", conversations.shares, name="shares"),
    path("shares/<uuid:pk>/end/", conversations.end_share, name="end_share"),
    path("export/", conversations.export_all, name="export_all"),
    path("import/", conversations.imports, name="imports"),
    path("import/<uuid:pk>/", conversations.import_one, name="import"),
    path("import/<uuid:pk>/retry/", conversations.retry_import, name="retry_import"),
    path("import/<uuid:pk>/pause/", conversations.pause_import, name="pause_import"),
    path("import/<uuid:pk>/undo/", conversations.undo_import, name="undo_import"),
    path("import/<uuid:pk>/remove/", conversations.remove_import, name="remove_import"),
    path("search/", conversations.search, name="search"),
    path("palette/", palette.palette, name="palette"),
    path("preview/", previews.preview, name="preview"),
    path("preview/frame/", previews.frame, name="preview_frame"),
    path("projects/<uuid:pk>/", project_page.project, name="project"),
    path("projects/<uuid:pk>/meter/", persona_and_project.meter, name="project_meter"),
    path("projects/<uuid:pk>/conversations/", project_page.conversations, name="project_conversations"),
    path("personas/<uuid:pk>/plan/", persona_and_project.plan, name="persona_plan"),
    path("personas/<uuid:pk>/delete/", persona_and_project.delete, name="delete_persona"),
    path("prompts/<uuid:pk>/use/", conversation.use_prompt, name="use_prompt"),
    path("models/", conversation.all_models, name="models"),
    path("models/<uuid:pk>/favourite/", conversation.favourite, name="favourite"),
    path("starters/", conversation.starters, name="starters"),
    path("c/<uuid:pk>/persona/", conversation.change_persona, name="change_persona"),
    path("c/<uuid:pk>/prompts/", conversation.offer_prompts, name="offer_prompts"),
    path("offered-prompts/", conversation.offer_prompts, name="offer_prompts_new"),
    path("results/<uuid:pk>/", sources.tool_result, name="tool_result"),
    path("c/<uuid:pk>/sources/", sources.conversation_sources, name="sources"),
    path("messages/<uuid:pk>/sources/", sources.answer_sources, name="answer_sources"),
    path("messages/<uuid:pk>/sources/<int:number>/", sources.preview, name="source"),
    path("messages/<uuid:pk>/citations/<int:part>/<int:citation>/", sources.doubt, name="doubt"),
    path("messages/<uuid:pk>/text/", sources.as_written, name="as_written"),
    path("messages/<uuid:pk>/", conversation.message, name="message"),
    path("messages/<uuid:pk>/regenerate/", conversation.regenerate, name="retry"),
    path("messages/<uuid:pk>/edit/", branches.edit, name="edit"),
    path("messages/<uuid:pk>/fork/", branches.fork, name="fork"),
    path("messages/<uuid:pk>/choose/", branches.choose, name="choose"),
    path("messages/<uuid:pk>/continue/", branches.go_on, name="continue"),
    path("messages/<uuid:pk>/shorten/", branches.shorten, name="shorten"),
    path("messages/<uuid:pk>/menu/", branches.menu, name="message_menu"),
    path("messages/<uuid:pk>/feedback/", branches.feedback, name="feedback"),
    path("messages/<uuid:pk>/mark/", branches.mark, name="mark"),
    path("messages/<uuid:pk>/delete/", branches.delete, name="delete_message"),
    path("messages/<uuid:pk>/restore/", branches.restore, name="restore_message"),
    path("plan/", conversation.plan, name="plan_new"),
    path("c/<uuid:pk>/plan/", conversation.plan, name="plan"),
    path("pick/", file_picker.pick, name="pick"),
    path("c/<uuid:pk>/pick/", file_picker.pick, name="pick"),
    path("turns/<uuid:pk>/report/", conversation.report, name="report"),
    path("turns/<uuid:pk>/stop/", conversation.stop, name="stop"),
    path("turns/<uuid:pk>/approvals/", conversation.approval, name="approval"),
    path("daily/", conversations.today, name="today"),
    path("daily/<chat_day:day>/", conversations.day, name="day"),
    path("c/<uuid:pk>/summarise/", summary_views.summarise, name="summarise"),
    path("summaries/<uuid:pk>/edit/", summary_views.edit, name="edit_summary"),
    path("summaries/<uuid:pk>/rebuild/", summary_views.rebuild, name="rebuild_summary"),
    path("summaries/<uuid:pk>/undo/", summary_views.undo, name="undo_summary"),
    path("c/<uuid:pk>/next/", conversation.queued, name="next"),
    path("c/<uuid:pk>/next/send/", conversation.send_next, name="send_next"),
    path("c/<uuid:pk>/next/edit/", conversation.edit_queued, name="edit_next"),
    path("c/<uuid:pk>/next/remove/", conversation.remove_queued, name="remove_next"),
]

# A shared conversation needs no sign-in: everybody with the link can open it. It may have diagrams.
urlpatterns = [
    *require_sign_in(urlpatterns),
    *ledger_urls.urlpatterns,
    *memory_urls.urlpatterns,
    *reading_urls.urlpatterns,
    *run_urls.urlpatterns,
    path("s/<slug:token>/", limited("shared", conversations.shared), name="shared"),
    path("diagram/", diagrams.frame, name="diagram"),
]
