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

__all__ = [
    "BudgetProfile",
    "Persona",
    "PersonaShare",
    "PromptText",
    "PromptVersion",
    "Reminder",
    "SummaryPrompt",
    "SystemPrompt",
]
