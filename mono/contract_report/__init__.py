"""How `amd-mono contract` shows a report: as tables for a terminal, as Markdown for an issue."""
