"""Optional parts that few installations need. README.md in this folder lists them."""
