"""Objectives, tasks and checklists: one table of rows with codes, its rules and its pages."""
