"""Tools that reach the open web. Nothing here knows of rows or of conversations."""
