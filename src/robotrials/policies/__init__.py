"""Who acts: policies behind wires, replays and probes."""
