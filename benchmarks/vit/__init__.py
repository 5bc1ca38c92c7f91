"""Time and memory of nearest-neighbor attention, compared with plain formulations and SDPA."""
