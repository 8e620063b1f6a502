"""The tag `{% help_address %}`: the address of the guide's section about the current page, for its link “?”."""

from django import template

from config.help.guide import place_of_page
from config.help.rendering import address_of

register = template.Library()


@register.simple_tag(takes_context=True)
def help_address(context: template.Context) -> str:
    match = context["request"].resolver_match
    return address_of(place_of_page(match.route if match else ""))
