"""A benchmark as a service: a server with a queue of leases, workers that run cells, clients that bring policies."""
