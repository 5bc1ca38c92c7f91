"""Pages, figures and tables for people, made from reports; every sentence is computed."""
