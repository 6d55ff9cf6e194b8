"""Figures, tables and pages of the committed studies: findings, gallery, and the block in the README."""
