"""Everything that is wrong with a cell, found before the first step of any."""
