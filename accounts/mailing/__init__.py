"""The mails of the product, sent through the server of `EMAIL_URL`."""
