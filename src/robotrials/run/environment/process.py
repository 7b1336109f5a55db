"""The outside of an isolated environment: starting a worker in it, and calling it with a deadline."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError
from robotrials.run.environment.recipe import Environment, link_robotrials
from robotrials.run.environment.shared import SharedBlock
from robotrials.wire import LIMITS, WireLimits, unpack
from robotrials.wire.link import HEADER, Deadline, Link, encode_frame, read_header

WORKER = 'robotrials.run.environment.worker'
END_S = 60.0  # a killed process ends; on a busy machine not at once
TOLD_BYTES = 4000
KEPT_VARIABLES = ('PATH', 'HOME', 'LANG', 'CUDA_VISIBLE_DEVICES', 'MUJOCO_GL', 'PYOPENGL_PLATFORM', 'LD_LIBRARY_PATH',
                  'TMPDIR', 'XDG_CACHE_HOME', 'HF_HOME', 'DISPLAY', 'VK_ICD_FILENAMES',
                  'ROBOTRIALS_SWIFTSHADER')  # fmt: skip
# What chooses numerical kernels and threads. OpenBLAS rounds differently from one kind of processor to the next: a
# simulation that is not told which kernels to take differs in its last bits from the one outside.
KERNEL_PREFIXES = ('OPENBLAS_', 'OMP_', 'MKL_', 'BLIS_', 'GOTO_', 'VECLIB_', 'NPY_', 'NUMBA_')


def kept_variables() -> dict[str, str]:
    """What a process in another environment takes over of this one's variables."""
    return {
        name: value for name, value in os.environ.items()
        if name in KEPT_VARIABLES or name.startswith(KERNEL_PREFIXES)
    }  # fmt: skip


class WorkerProcess:
    """A service running inside an environment; one call at a time.

    A worker that does not answer in time is ended: RigError if it died, NoAnswer if it was silent, RemoteError with its
    traceback if a call failed. start_timeout_s covers its imports. variables are set for it besides those that are
    kept. shares_memory: large arrays of its answers come through shared memory where there is such a thing.
    """

    def __init__(
        self,
        environment: Environment,
        service: str,
        *,
        start_timeout_s: float = 300.0,
        limits: WireLimits = LIMITS,
        variables: Mapping[str, str] | None = None,
        shares_memory: bool = False,
    ) -> None:
        self._service, self._limits = service, limits
        self.is_over = False
        ours, theirs = socket.socketpair()
        self._block = SharedBlock.create() if shares_memory else None
        passed = [theirs.fileno(), *([self._block.descriptor] if self._block is not None else [])]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - what the worker prints, for messages
        kept = kept_variables()
        kept.update(PYTHONPATH=str(link_robotrials(environment.folder)), PYTHONNOUSERSITE='1', HF_HUB_OFFLINE='1')
        kept.update(variables or {})
        try:
            self._process = subprocess.Popen(
                [str(environment.python), '-m', WORKER, service, *map(str, passed)],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=kept,
            )
        except BaseException:
            ours.close()
            self._let_go()
            raise
        finally:
            theirs.close()
        self._link = Link(ours)
        greeting = self._receive(start_timeout_s, 'to start')
        if 'error' in greeting:
            self.close()
            raise RemoteError(f'{service} did not start:\n{greeting["error"]}')

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, name: str, value: object = None, *, timeout_s: float) -> Any:
        """The value that a method of the service returns."""
        message = encode_frame({'call': name, 'value': value}, limits=self._limits)
        try:
            self._link.send(message, deadline=Deadline.after(timeout_s))
        except OSError as error:
            raise self._lost(f'{name}: the question did not get through') from error
        answer = self._receive(timeout_s, name)
        if 'error' in answer:
            raise RemoteError(f'{self._service}.{name} failed:\n{answer["error"]}')
        return answer.get('value')

    def _receive(self, timeout_s: float, what: str) -> dict[Any, Any]:
        try:
            try:
                answer = self._read(Deadline.after(timeout_s))
            except TimeoutError:
                self.close()
                raise
        except TimeoutError as error:  # out of `close` too: the run's alarm clock may ring as a worker is being ended
            self.close()
            raise NoAnswer(f'{self._service}: no answer to {what} within {timeout_s:g} s') from error
        except OSError as error:
            raise self._lost(what) from error
        except InputError as error:
            self.close()
            raise AnswerError(f'{self._service}: {error}') from error
        if not isinstance(answer, dict):
            self.close()
            raise AnswerError(f'{self._service}: an answer of type {type(answer).__name__}, wanted a map')
        return answer

    def _read(self, deadline: Deadline) -> Any:
        length = read_header(self._exactly(HEADER.size, deadline), limits=self._limits)
        answer = unpack(self._exactly(length, deadline), limits=self._limits)
        return answer if self._block is None else self._block.take(answer)

    def _exactly(self, length: int, deadline: Deadline) -> bytes:
        parts, missing = [], length
        while missing:
            part = self._link.receive(deadline=deadline, most=min(missing, 1 << 20))
            if not part:
                raise ConnectionError('the worker hung up')
            parts.append(part)
            missing -= len(part)
        return b''.join(parts)

    def _lost(self, what: str) -> RigError:
        """The error for a worker that is gone, with the end of what it printed."""
        try:
            code: int | None = self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            code = None
        size = os.fstat(self._output.fileno()).st_size
        printed = os.pread(self._output.fileno(), TOLD_BYTES, max(0, size - TOLD_BYTES)).decode(errors='replace')
        self.close()
        return RigError(f'{self._service}: the worker ended (exit code {code}) at {what}\n{printed}'.rstrip())

    def close(self) -> None:
        """End the worker, at once."""
        self._link.close()
        self._process.kill()
        try:
            self._process.wait(timeout=END_S)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._output.close()
        if self._block is not None and not self.is_over:
            self._block.close()
        self.is_over = True
