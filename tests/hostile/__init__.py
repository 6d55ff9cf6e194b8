"""Results, study files, YAMLs, weights and checkpoints of somebody who means ill, tried through every command."""
