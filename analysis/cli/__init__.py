"""The command line of the analysis: analyse, export, verify."""
