"""Files that are in other files: attachments of letters, members of archives, documents behind a password."""
