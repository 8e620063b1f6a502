"""Tools of the program that asks: it runs them itself, so that a call of one ends the turn."""

from dataclasses import replace

from chat.prompts import Setting


def with_external_tools(setting: Setting) -> Setting:
    """The setting with the program's tools. One of a name that the product has too stands in its place."""
    offered = setting.options.tools if setting.options.tool_choice != "none" else ()
    if not offered:
        return setting
    names, box = {tool.name for tool in offered}, setting.toolbox
    replaced = [f"The calling program has a tool {name} of its own." for name in box.tools if name in names]
    own = replace(
        box,
        tools={name: tool for name, tool in box.tools.items() if name not in names},
        guidance=tuple(each for each in box.guidance if each.name not in names),
        notes=(*box.notes, *replaced),
        external=offered,
    )
    return replace(setting, toolbox=own)
