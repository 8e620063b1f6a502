"""Run programs of the machine that read other formats: confined, each in a folder of its own."""
