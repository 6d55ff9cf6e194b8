"""A saved view and a report of a study on W&B, built in code with `wandb-workspaces`."""
