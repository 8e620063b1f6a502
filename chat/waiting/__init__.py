"""What waits while an answer is written: the next message, and calls that need a permission."""
