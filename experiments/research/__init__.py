"""Studies that test the claims of the research, and the page of their outcomes."""
