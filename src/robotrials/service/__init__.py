"""The page frame of console, explorer and platform: one look, one policy for content, nothing from elsewhere."""
