"""What people type and see: words read, plans and results printed."""
