"""Links under which anybody may read one branch of a conversation, until they are ended."""
