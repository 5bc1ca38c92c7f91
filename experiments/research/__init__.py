"""Every table of the research measured anew, and a page that says what came of each claim."""
