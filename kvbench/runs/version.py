"""The version of kvbench, which every manifest names."""

__version__ = "0.1.0"
