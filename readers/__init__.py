"""From bytes to text. Nothing here imports Django: it runs in a process of its own, which has to start fast."""
