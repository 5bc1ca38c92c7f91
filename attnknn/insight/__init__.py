"""What follows from leave-one-out: audit, what-if, drift and forgetting."""
