"""What a user may write: groups, keys, overrides, study files, factors, designs, claims; composed, typed, checked."""
