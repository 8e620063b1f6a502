"""The one error of this package."""


class StartError(Exception):
    """The product cannot start. The message is one sentence for the operator: what is wrong and how to mend it."""
