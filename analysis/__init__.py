"""Figures and tables of a study, from results on disk; never loads torch."""
