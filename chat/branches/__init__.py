"""The tree of messages: editing, continuing, choosing a branch, deleting."""
