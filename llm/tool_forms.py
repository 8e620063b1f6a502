"""The admin's forms for what tools use."""

from typing import Any, ClassVar

from llm.forms import ProviderForm
from llm.models import ToolServer, WebSearch


class WebSearchForm(ProviderForm):
    """An address and a key that never comes back, as of a provider: so its rules for both hold here."""

    class Meta:
        model = WebSearch
        fields: ClassVar = ["name", "kind", "base_url"]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        keyless = self.api_key == "" or (self.api_key is None and not self.instance.api_key)
        if cleaned.get("kind") == WebSearch.Kind.BRAVE and keyless and not self.errors:
            self.add_error("new_api_key", "Brave answers only with a key. Enter one.")
        return cleaned


class ToolServerForm(ProviderForm):
    class Meta:
        model = ToolServer
        fields: ClassVar = ["name", "kind", "base_url", "command", "secret_name", "approval_required", "enabled"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, label in (("new_api_key", "Secret"), ("clear_api_key", "Remove the stored secret")):
            if name in self.fields:
                self.fields[name].label = label
