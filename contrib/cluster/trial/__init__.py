"""Trials of the cluster under load: faults one after the other, a deploy, and many streams."""
