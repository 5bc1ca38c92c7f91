"""Speed, one file per room."""
