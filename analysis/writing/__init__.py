"""A case in words: sentences, tables, LaTeX, Markdown, methods, references."""
