"""The command line: ``main.py`` is the entry, then a file a command."""
