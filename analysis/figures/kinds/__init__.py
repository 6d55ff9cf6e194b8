"""One file per kind of figure: its table, and how it is drawn."""
