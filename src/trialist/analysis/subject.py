"""What a named figure or table is made from: each kind of input, read into one value."""

from __future__ import annotations

PUBLISHED = 'published'
