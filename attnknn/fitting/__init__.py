"""Teaches attention through the pipeline, leave-one-out."""
