"""Read files within other files: attachments of letters, members of archives, documents with a password."""
