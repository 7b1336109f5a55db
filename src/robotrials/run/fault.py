"""What can go wrong in an episode, whose fault it is, and what it counts as."""

from __future__ import annotations

import builtins
import enum
import traceback
import zlib

from robotrials.errors import AnswerError, InputError, NoAnswer, RigError, SetupError
from robotrials.record import Episode, Outcome, Store
from robotrials.record.blinding import close_envelope, open_envelope
from robotrials.run.blinding import Blinding, blinding_of, unseal
from robotrials.run.plan import FaultOptions, FaultOutcome, TrialPlan
from robotrials.value import dataclass

LONGEST_TEXT = 100_000


class FaultKind(enum.StrEnum):
    HOST_CRASH = 'host crash'
    HOST_HANG = 'host hang'
    HOST_ANSWER = 'host answer'  # an observation that is not what the host declared, or that changed afterwards
    POLICY_CRASH = 'policy crash'
    POLICY_HANG = 'policy hang'
    POLICY_SILENT = 'policy silent'  # behind a wire that held, no answer in time
    POLICY_ENDPOINT = 'policy endpoint'  # the way to it broke: it was not tested
    POLICY_LATE = 'policy late'
    POLICY_ANSWER = 'policy answer'  # actions that are not finite, or not of the declared shape
    POLICY_EXIT = 'policy exit'  # the process ended while it was the policy's turn
    POLICY_WITHDRAWN = 'policy withdrawn'  # on a platform: its submitter cancelled it, or never came to its cell
    WORKER_DEATH = 'worker death'  # the process went away: out of memory, a segmentation fault, a kill

    @property
    def is_the_policys(self) -> bool:
        """Whether it arose on the policy's side of the loop, so that its text could name the policy."""
        return self.value.startswith('policy')


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its kind, what is safe to show while blinded, and the full text that may name a policy."""

    kind: FaultKind
    summary: str
    text: str = ''

    def __post_init__(self) -> None:
        for name in ('summary', 'text'):
            object.__setattr__(self, name, storable_text(getattr(self, name)))

    @property
    def reason(self) -> str:
        return f'{self.kind.value}: {self.summary}'

    def outcome(self, options: FaultOptions) -> Outcome:
        """INVALID if the policy was not tested, FAILURE if the plan holds the policy to it."""
        rules = {
            FaultKind.POLICY_CRASH: options.policy_crash,
            FaultKind.POLICY_HANG: options.policy_hang,
            FaultKind.POLICY_SILENT: options.policy_hang,
            FaultKind.POLICY_LATE: options.policy_late,
            FaultKind.POLICY_ANSWER: options.policy_answer,
        }
        if self.kind in (FaultKind.POLICY_EXIT, FaultKind.POLICY_WITHDRAWN):
            return Outcome.FAILURE  # no plan excuses it: whoever may take back an episode would take back the lost ones
        failed = rules.get(self.kind, FaultOutcome.INVALID) is FaultOutcome.FAILURE
        return Outcome.FAILURE if failed else Outcome.INVALID


class EpisodeStop(Exception):  # noqa: N818 - not an error of the program: it ends one episode and never leaves this room
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(fault.reason)


def crash(kind: FaultKind, error: BaseException, *, step: int) -> EpisodeStop:
    """The stop for an exception out of host or policy code. A policy's own exception class could name it: it is hidden.

    The host's message is kept, because the operator has to mend the host; it is scrubbed of names when recorded. A host
    in another process that was silent, or that answered with what is no answer, is named as such.
    """
    if kind is FaultKind.HOST_CRASH:
        kinds = {NoAnswer: FaultKind.HOST_HANG, AnswerError: FaultKind.HOST_ANSWER}
        kind = next((k for cls, k in kinds.items() if isinstance(error, cls)), kind)
    known = type(error).__name__ if hasattr(builtins, type(error).__name__) else 'an exception'
    summary = f'{known} at step {step}'
    if not kind.is_the_policys:
        summary = f'{type(error).__name__} at step {step}: {message_of(error)}'
    return EpisodeStop(Fault(kind, summary, ''.join(traceback.format_exception(error))))


def policy_fault(error: BaseException, *, step: int) -> EpisodeStop:
    """The stop for an exception out of a policy; which fault it is depends on whether the policy had its chance.

    A question or answer lost on the way is the rig's; silence on a connection that held, an answer that is none, and an
    error that the policy reports are its own. So is leaving the process, by `sys.exit` too.
    """
    if isinstance(error, SystemExit):
        summary = f'SystemExit at step {step}'
        return EpisodeStop(Fault(FaultKind.POLICY_EXIT, summary, ''.join(traceback.format_exception(error))))
    kinds = {
        RigError: FaultKind.POLICY_ENDPOINT,
        SetupError: FaultKind.POLICY_ENDPOINT,  # such as a wire that the two sides speak in different versions
        NoAnswer: FaultKind.POLICY_SILENT,
        AnswerError: FaultKind.POLICY_ANSWER,
    }
    kind = next((k for cls, k in kinds.items() if isinstance(error, cls)), FaultKind.POLICY_CRASH)
    if kind is FaultKind.POLICY_CRASH:
        return crash(kind, error, step=step)
    reasons = {
        FaultKind.POLICY_ENDPOINT: 'the connection failed',
        FaultKind.POLICY_SILENT: 'no answer in time',
        FaultKind.POLICY_ANSWER: 'an answer that is none',
    }
    return EpisodeStop(Fault(kind, f'{reasons[kind]} at step {step}', ''.join(traceback.format_exception(error))))


def message_of(error: BaseException) -> str:
    """What an exception says, if it can say it."""
    try:
        return str(error)
    except Exception:
        return '(its message cannot be read)'


def storable_text(text: str) -> str:
    """`text` with halves of characters, which no file can hold, spelled out; cut at a length that says enough."""
    whole = text.encode('utf-8', 'backslashreplace').decode('utf-8')
    return whole if len(whole) <= LONGEST_TEXT else f'{whole[:LONGEST_TEXT]} ... (cut)'


# The full text of faults: kept beside the episodes, sealed while it could name a policy.

FOLDER = 'media/faults'
Key = tuple[str, int]
PADDED_BYTES = 1 << 14


def fault_file(key: Key, fault: Fault, *, blinding: Blinding) -> dict[str, bytes]:
    """A fault's text as a file of media/: the host's for everyone to read, without names; the policy's sealed."""
    name = _name(key)
    if blinding.public and fault.kind is not FaultKind.HOST_CRASH:
        label = f'faults/{name}.envelope'
        text = zlib.compress(f'{fault.reason}\n{fault.text}'.encode('utf-8', 'backslashreplace'))
        padded = text + bytes(-len(text) % PADDED_BYTES)  # how long an error text is would tell arms apart
        return {label: close_envelope(blinding.public, padded, label=label)}
    if blinding.terms and fault.kind.is_the_policys:
        return {f'faults/{name}.sealed': blinding.seal(fault.text, nonce=name).encode()}
    return {f'faults/{name}.txt': blinding.scrub(fault.text).encode('utf-8', 'backslashreplace')}


def read_fault(store: Store, episode: Episode, *, plan: TrialPlan | None = None) -> str | None:
    """The text of the fault that ended an episode, or None if none was kept.

    A sealed text opens once the trial is closed, or for whoever has the plan.
    """
    name = _name(episode.key)
    plain, sealed = (store.file(f'{FOLDER}/{name}{suffix}') for suffix in ('.txt', '.sealed'))
    if plain.exists():
        return plain.read_text(encoding='utf-8')
    label = f'faults/{name}.envelope'
    if store.has_file(f'media/{label}'):
        return _opened(store, episode, label)
    if not sealed.exists():
        return None
    opened = store.unblindings().by_trial.get(episode.trial_id)
    if plan is not None:
        key = blinding_of(plan).key
    elif opened is not None:
        key = bytes.fromhex(opened.key)
    else:
        raise InputError(f'{sealed} is sealed until the trial is closed; give the plan to read it now')
    return unseal(key, sealed.read_text(encoding='utf-8'), nonce=name)


def _opened(store: Store, episode: Episode, label: str) -> str:
    closing = store.unblindings().by_trial.get(episode.trial_id)
    if closing is None:
        raise InputError(f'{label} is sealed until the trial is closed; only the statistician can open it')
    envelope = store.file(f'media/{label}').read_bytes()
    content = open_envelope(bytes.fromhex(closing.key), envelope, label=label)
    return zlib.decompressobj().decompress(content).decode('utf-8')


def _name(key: Key) -> str:
    return f'{key[0]}-{key[1]}'
