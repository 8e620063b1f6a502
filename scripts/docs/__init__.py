"""The documentation: tables that are generated from the code, and how easy its sentences are to read."""
