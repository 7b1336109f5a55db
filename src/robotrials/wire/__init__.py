"""Messages between processes and machines: framed, bounded, with deadlines; no pickle."""

from robotrials.wire.array import LIMITS, WireLimits, pack, unpack
from robotrials.wire.link import read_frame, write_frame

__all__ = ['LIMITS', 'WireLimits', 'pack', 'read_frame', 'unpack', 'write_frame']
