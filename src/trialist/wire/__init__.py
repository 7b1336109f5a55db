"""Messages between processes and machines: msgpack with numpy arrays, framed, versioned, size-limited; no pickle."""

from trialist.wire.array import pack, unpack
from trialist.wire.frame import read_frame, write_frame

__all__ = ['pack', 'read_frame', 'unpack', 'write_frame']
