"""Other people's files, read and written: one module per format."""
