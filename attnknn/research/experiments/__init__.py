"""Claims measured: settings in, a report for each seed out, and what was stopped goes on."""
