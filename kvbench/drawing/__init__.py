"""How reports are drawn: tables and paragraphs, numbers, and plots as SVG. Knows nothing of what they show."""
