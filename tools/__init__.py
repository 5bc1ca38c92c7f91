"""Scripts that are no part of the package: docstring checks, pictures of the docs."""
