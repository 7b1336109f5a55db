"""Messages between processes and machines: framed, bounded, with deadlines; no pickle."""

from trialist.wire.array import pack, unpack
from trialist.wire.frame import read_frame, write_frame
from trialist.wire.limit import LIMITS, WireLimits

__all__ = ['LIMITS', 'WireLimits', 'pack', 'read_frame', 'unpack', 'write_frame']
