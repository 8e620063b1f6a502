"""A run works through a task's checklist, one turn for each item, and stops where a person is needed."""
