"""How long tests wait for what is to come: long, since a limit that is not reached costs nothing on a busy machine."""

PATIENCE_S = 120.0
PATIENCE_MS = int(1000 * PATIENCE_S)
