"""What people read of a study: tables, sentences, methods, LaTeX, the report as Markdown and as a page."""
