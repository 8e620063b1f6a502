"""Read files within other files, such as attachments and members of archives, and files with a password."""
