from personas.models.persona import BudgetProfile, Persona, PromptVersion, Reminder, SummaryPrompt, SystemPrompt
from personas.models.saved_prompt import SavedPrompt

__all__ = ["BudgetProfile", "Persona", "PromptVersion", "Reminder", "SavedPrompt", "SummaryPrompt", "SystemPrompt"]
