"""How fast and how large nearest-neighbor attention is, beside plain formulations and SDPA."""
