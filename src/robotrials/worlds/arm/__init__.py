"""What LIBERO and robosuite 1.5 share: one arm of robosuite, driven alike, read alike and watched alike."""
