from personas.models.persona import (
    BudgetProfile,
    Persona,
    PersonaShare,
    PromptText,
    PromptVersion,
    Reminder,
    SummaryPrompt,
    SystemPrompt,
)
from personas.models.saved_prompt import SavedPrompt

__all__ = [
    "BudgetProfile",
    "Persona",
    "PersonaShare",
    "PromptText",
    "PromptVersion",
    "Reminder",
    "SavedPrompt",
    "SummaryPrompt",
    "SystemPrompt",
]
