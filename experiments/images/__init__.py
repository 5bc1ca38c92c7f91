"""Image encoders trained for the vote: kNN beside the CNN head of the same training."""
