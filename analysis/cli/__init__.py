"""What people type to have a study analysed, exported or verified."""
