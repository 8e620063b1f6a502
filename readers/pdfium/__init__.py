"""Read the lines, drawn rules and places of a page from PDFium."""
