"""What the lines of a run folder mean. Computed from its files: nothing here measures or needs torch or a server."""
