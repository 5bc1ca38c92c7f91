"""Small Vision Transformers on CIFAR-10, alike in all but how their tokens attend."""
