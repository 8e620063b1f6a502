"""Generate the documentation's tables from the code, and check how easy its sentences are to read."""
