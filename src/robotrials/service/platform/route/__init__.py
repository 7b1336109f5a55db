"""The REST interface: routes parse, ask a service, and answer. Everything is under /api/v1."""
