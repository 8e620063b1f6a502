"""What PDFium says of a page, in the words of the readers."""
