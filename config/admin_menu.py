"""The admin's menu, in the order in which a workspace is set up."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

GROUPS = {
    "Models": {"llm.Provider": "dns", "llm.Model": "neurology"},
    "Prompts": {
        "personas.SystemPrompt": "history_edu",
        "personas.SummaryPrompt": "summarize",
        "personas.Persona": "face",
        "personas.Reminder": "campaign",
        "personas.BudgetProfile": "tune",
    },
    "Tools": {"llm.WebSearch": "travel_explore", "llm.ToolServer": "build"},
    "Files": {"files.File": "description", "files.Embedder": "graph_3", "projects.Project": "folder"},
    "People": {"accounts.User": "person", "auth.Group": "group", "accounts.ApiToken": "key"},
    "Webhooks": {"accounts.Webhook": "webhook", "accounts.WebhookDelivery": "outbox"},
    "Tasks": {"projects.Task": "task_alt", "projects.TaskChange": "history", "chat.Run": "play_circle"},
    "Use": {
        "chat.Conversation": "forum",
        "chat.Turn": "bolt",
        "chat.Share": "link",
        "chat.Import": "upload",
        "chat.Summary": "compress",
        "chat.SummaryJob": "pending_actions",
    },
}


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Unfold's groups of links to what this administrator may see; what has no group comes last."""
    pages = {
        f"{app['app_label']}.{page['object_name']}": page
        for app in admin.site.get_app_list(request)
        for page in app["models"]
    }
    grouped = {label for labels in GROUPS.values() for label in labels}
    rest = {label: "table" for label in pages if label not in grouped}
    return [
        {
            "title": title,
            "separator": True,
            "items": [
                {"title": pages[label]["name"], "icon": icon, "link": pages[label]["admin_url"]}
                for label, icon in labels.items()
                if label in pages
            ],
        }
        for title, labels in {**GROUPS, "More": rest}.items()
        if any(label in pages for label in labels)
    ]
