"""Text output of a case: sentences, tables, LaTeX, Markdown, methods, references."""
