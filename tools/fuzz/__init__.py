"""Mutate the files of model folders and the input files of the command line, and use them.

Whatever the bytes are, a model must load and predict finite probabilities, or raise an error of
`attnknn.errors`, within a limit of time and memory. `python -m tools.fuzz --help` runs it;
`mutations` changes bytes, `targets` has the files and what is done with them, `worker` runs cases
in processes of their own.
"""
