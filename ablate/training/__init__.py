"""Training one run, from its configuration to its metrics; `trainer` holds the loop."""
