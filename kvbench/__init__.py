"""kvbench: what a KV-cache tier is worth, how large it must be, and whether the last upgrade undid it."""

__version__ = "0.1.0"
