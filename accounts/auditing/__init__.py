"""The audit in the admin and the API, for administrators and their programs."""
