"""Every table of the research measured again, and a page that says what came of each claim."""
