"""Programs of the machine that read what ours do not: confined as well, each in a folder of its own."""
