"""Turn speech into text and text into speech, by servers that an administrator names."""
