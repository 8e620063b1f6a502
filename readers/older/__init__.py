"""Read documents of Office 97 to 2003, whose parts are streams of a compound file."""
