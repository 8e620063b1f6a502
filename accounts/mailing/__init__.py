"""What the product mails, where `EMAIL_URL` says through which server."""
