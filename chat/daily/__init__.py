"""One day of a person: what was said, and what its summaries say."""
