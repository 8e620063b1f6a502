from django.apps import AppConfig
from django.db.models import Q


class ChatConfig(AppConfig):
    name = "chat"

    def ready(self) -> None:
        """Register legal holds, stored sizes, the page reader and background jobs with lower-level apps."""
        from accounts.access.holds import register_hold
        from accounts.models import User
        from chat.background.page_reading import read_page
        from chat.background.tasks import end_lost_summaries
        from chat.conversations.import_undo import UNDOS
        from chat.conversations.importing.counting import COUNTING_JOBS
        from chat.conversations.importing.jobs import IMPORTS, give_up
        from chat.conversations.importing.listing import register_update_service
        from chat.conversations.services import update_conversation
        from chat.models import Conversation, Import, ToolResult
        from chat.summaries.ending import SUMMARIES
        from core.jobs import register
        from files.models import File
        from files.registry import register_page_reader, register_stored_model, register_temporary

        register_hold(Conversation, "legal_hold", "owner__legal_hold")
        register_hold(Import, "owner__legal_hold")
        register_hold(ToolResult, "owner__legal_hold", "conversation__legal_hold")
        conversation = "attachments__message__conversation"
        attached = (f"{conversation}__legal_hold", f"{conversation}__owner__legal_hold")
        register_hold(File, *attached)
        register_hold(User, "conversations__legal_hold", *(f"files__{path}" for path in attached))
        register_temporary(Q(attachments__message__conversation__origin=Conversation.Origin.TEMPORARY))
        register_stored_model(Import)
        register_stored_model(ToolResult)
        register_page_reader(read_page)
        register_update_service(update_conversation)
        register(SUMMARIES, on_lost=end_lost_summaries)
        register(IMPORTS, give_up=give_up)
        register(COUNTING_JOBS)
        register(UNDOS)
