"""The command line: parses words, prints plans and results."""
