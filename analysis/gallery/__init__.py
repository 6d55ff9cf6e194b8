"""The studies whose tables are committed, as figures, tables and pages: findings, gallery, what the README shows."""
