"""kvbench for other programs: runs as tables, and comparisons. Light to import: what is heavy is imported when it is used."""
