"""What Django's own formats of a language leave out."""
