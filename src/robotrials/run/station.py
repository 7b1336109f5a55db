"""A station: one host in one process, on which episodes are run and become records."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from robotrials.errors import InputError, RecordError, RigError, RobotrialsError, SetupError
from robotrials.record import Episode, Outcome, Store, Trajectory
from robotrials.record.blinding import coarse_reason, seal_trajectory
from robotrials.record.episode import ParameterValue
from robotrials.record.rows import episodes_to_arrow, events_to_arrow
from robotrials.run.blinding import Arms, Blinding, blinding_of, derived_seed
from robotrials.run.component import CheckpointGuard, check_host_fits, check_policy_fits, open_host, open_policy
from robotrials.run.condition import draw_entry, severity_of
from robotrials.run.conditions import is_drawable
from robotrials.run.fault import Fault, FaultKind, crash, fault_file, policy_fault
from robotrials.run.host import Host
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.mark import NoBoard, PhaseBoard, WorkerPhase
from robotrials.run.plan import ConditionEntry, LimitOptions, PolicyEntry, TrialPlan
from robotrials.run.schedule import Slot, Spool, trial_slots
from robotrials.run.seam import ClosablePolicy, HostReport, Policy, ProtocolFacts, Setup

AWAIT_PAUSE_S = 0.5
# The kinds whose summary quotes the host; all others are in our own words.
FOREIGN_WORDS = (FaultKind.HOST_CRASH, FaultKind.HOST_ANSWER)


@dataclass(frozen=True, slots=True)
class Context:
    """What every episode of a run has in common."""

    plan: TrialPlan
    blinding: Blinding
    trial_id: str
    provenance_id: str = ''
    operator: str = ''
    arms: Arms = field(default_factory=lambda: Arms({}))  # of an operator's plan: how to open each code, and when

    @classmethod
    def of(
        cls, plan: TrialPlan, *, provenance_id: str = '', operator: str = '',
        arms: Arms | None = None,
    ) -> Context:  # fmt: skip
        behind = arms or Arms({})
        blinding = blinding_of(plan, behind.entries, rotation=behind.rotation)
        return cls(plan, blinding, plan.hash, provenance_id, operator, behind)

    def slots(self) -> tuple[Slot, ...]:
        """The order of the whole trial."""
        return trial_slots(self.plan, rotation=self.arms.rotation)

    def entry(self, name: str) -> PolicyEntry:
        """How to open a policy: as the plan says or, of an operator's plan, as the arms do."""
        if not self.plan.blinding.is_sealed:
            return self.plan.policies[name]
        if name not in self.arms.entries:
            raise InputError("this is an operator's plan: give the file that says how to reach its codes (--arms)")
        return self.arms.entries[name]

    def planned(self, slot: Slot, attempt: int = 0) -> Episode:
        """The episode of a slot as far as it is known beforehand; its outcome is not, and stands as INVALID."""
        cell = slot.cell
        return Episode(
            policy=self.blinding.name(slot.policy, slot.place),
            is_reference=not self.plan.blinding.enabled and slot.policy == self.plan.reference,
            task=cell.task.name,
            outcome=Outcome.INVALID,
            duration_s=0.0,
            trial_id=self.trial_id,
            attempt=attempt,
            benchmark=self.plan.benchmark,
            stratum=cell.stratum.name,
            condition=cell.condition.name,
            condition_parameters=_declared(cell.condition),
            seed=slot.seed,
            instance=slot.instance,
            repeat=slot.repeat,
            block=slot.block,
            session=slot.session,
            operator=self.operator,
            time_cap_s=cell.time_cap_s,
            items=cell.items,
            instruction=cell.task.instruction,
            labels=slot.labels,
            provenance_id=self.provenance_id,
        )

    def faulty(self, slot: Slot, attempt: int, fault: Fault, *, duration_s: float = 0.0) -> Episode:
        """The episode of a slot that a fault ended."""
        outcome = fault.outcome(self.plan.faults)
        failed = outcome is Outcome.FAILURE
        return self.planned(slot, attempt).replace(
            outcome=outcome,
            duration_s=duration_s,
            reason=self._reason(fault),
            is_unrecoverable=True if failed else None,
            success=False if failed else None,
        )

    def _reason(self, fault: Fault) -> str:
        """What the record says while it is open; of a sealed trial only whose fault it was."""
        if self.blinding.public:
            return coarse_reason(fault.reason)
        return self.blinding.scrub(fault.reason) if fault.kind in FOREIGN_WORDS else fault.reason

    def finished(self, slot: Slot, attempt: int, rollout: Rollout) -> tuple[Episode, Fault | None]:
        """The episode of a rollout; an account by the host that breaks the record's rules is the host's fault."""
        fault = rollout.fault
        try:
            if fault is not None:
                episode = self.faulty(slot, attempt, fault, duration_s=rollout.duration_s)
                episode = episode.replace(labels={**episode.labels, **self._film_label(rollout)})
                told_by_host = _with_report(episode, rollout.report) if episode.is_valid else episode
                check_storable(told_by_host)
                return told_by_host, fault
            planned, measured = self.planned(slot, attempt), rollout.condition_parameters
            episode = planned.replace(
                condition_parameters=planned.condition_parameters if measured is None else measured,
                labels={**planned.labels, **_account(rollout), **self._film_label(rollout)},
                outcome=rollout.outcome or Outcome.TIMEOUT,
                duration_s=rollout.duration_s,
                started_at=rollout.started_at,
                is_unrecoverable=rollout.report.is_unrecoverable,
                success=rollout.report.success,
                reason=self.blinding.scrub(rollout.report.reason),
            )
            told_by_host = _with_report(episode, rollout.report)
            check_storable(told_by_host)
            return told_by_host, None
        except RecordError as error:
            complaint = Fault(FaultKind.HOST_ANSWER, f'its report breaks the rules of the record: {error}')
            return self.faulty(slot, attempt, complaint, duration_s=rollout.duration_s), complaint

    def _film_label(self, rollout: Rollout) -> dict[str, str]:
        return {'film': f'none: {self.blinding.scrub(rollout.film_note)}'} if rollout.film_note else {}

    def commit(
        self, store: Store, episode: Episode, *, fault: Fault | None, trajectory: Trajectory | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:  # fmt: skip
        """Put one episode into the store, with the text of its fault and its files."""
        media, trajectory = self.parts(episode, fault=fault, trajectory=trajectory, files=files)
        trajectories = {episode.key: trajectory} if trajectory is not None else None
        store.append([episode], trajectories=trajectories, media=media, by=self.operator)

    def parts(
        self, episode: Episode, *, fault: Fault | None, trajectory: Trajectory | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> tuple[dict[str, bytes], Trajectory | None]:  # fmt: skip
        """What goes with an episode: its files by their names in media/, and its trajectory, sealed where need be."""
        wants_text = fault is not None and bool(fault.text or self.blinding.public)
        media = fault_file(episode.key, fault, blinding=self.blinding) if fault is not None and wants_text else {}
        media.update({f'{media_folder(episode)}/{name}': content for name, content in (files or {}).items()})
        if files and trajectory is not None:
            trajectory = _with_files(trajectory, media_folder(episode), files)
        if self.blinding.public and trajectory is not None:
            trajectory, sealed = seal_trajectory(trajectory, episode.key, public=self.blinding.public)
            media.update(sealed)
        return media, trajectory


def media_folder(episode: Episode) -> str:
    """Where an episode's own files lie in media/."""
    return f'episodes/{episode.episode_id}-{episode.attempt}'


def _with_files(trajectory: Trajectory, folder: str, files: Mapping[str, bytes]) -> Trajectory:
    """The trajectory with its cameras' files named as they lie in media/."""
    cameras = tuple(
        dataclasses.replace(
            camera,
            video=f'{folder}/{camera.video}' if camera.video in files else camera.video,
            depth=f'{folder}/{camera.depth}' if camera.depth in files else camera.depth,
        )
        for camera in trajectory.scene.cameras
    )
    return dataclasses.replace(trajectory, scene=dataclasses.replace(trajectory.scene, cameras=cameras))


def check_storable(episode: Episode) -> None:
    """Raise RecordError if a table can't hold an episode: half a character, a count that is too large."""
    episodes_to_arrow([episode])
    events_to_arrow([episode])


def _declared(entry: ConditionEntry) -> Mapping[str, ParameterValue]:
    """What the plan says of a condition: it identifies the episode, whatever is drawn."""
    if entry.parameters or entry.name == 'nominal' or not is_drawable(entry.name):
        return entry.parameters
    return {'severity': severity_of(entry)}


def _account(rollout: Rollout) -> dict[str, str]:
    account = ', '.join(f'{kind}: {who}' for kind, who in rollout.applied_by.items())
    return {**rollout.labels, **({'condition_applied': account} if account else {})}


def _with_report(episode: Episode, report: HostReport) -> Episode:
    return episode.replace(
        score=report.score,
        max_score=report.max_score,
        items=episode.items if report.items is None else report.items,
        items_placed=report.items_placed,
        items_lost=report.items_lost,
        instruction=episode.instruction or report.instruction,
        labels={**report.labels, **episode.labels},
        events=report.events,
    )


@dataclass(frozen=True, slots=True)
class Finished:
    """What a station says of a slot it has run and stored."""

    slot: int
    attempt: int
    outcome: Outcome
    is_poisoned: bool = False  # a policy still hangs in this process: start another


class Station:
    """One host, opened once, and again after a fault of its own: no episode inherits another's damage.

    Whoever carries it says who acts, and where the episode goes: worker processes and Ray actors have a `TrialStation`,
    the platform's workers a `robotrials.service.platform.worker_episode.CellStation`.
    """

    def __init__(self) -> None:
        self._host: Host | None = None

    def _run(
        self, plan: TrialPlan, slot: Slot, host: Host, policy: Policy, *, seed: int, execute: int | None,
        board: PhaseBoard, limits: LimitOptions | None = None, thinking_s: float | None = None,
    ) -> Rollout:  # fmt: skip
        """One episode of a slot. seed: of what the loop and the policy draw. limits, thinking_s: not the plan's."""
        order = Order(
            time_cap_s=slot.cell.time_cap_s,
            policy_seed=seed,
            loop=plan.loop if limits is None else dataclasses.replace(plan.loop, limits=limits),
            recording=plan.recording,
            execute=execute,
            policy_limit_s=plan.watchdog.policy_s,
            thinking_s=plan.watchdog.thinking_s if thinking_s is None else thinking_s,
        )
        return run_episode(host, policy, setup_of(slot), order=order, board=board)

    def close(self) -> None:
        """Let go of the host; the next episode opens it anew."""
        host, self._host = self._host, None
        _close(host)


class TrialStation(Station):
    """The host and the policies of a trial; what they do goes into its store."""

    def __init__(
        self, context: Context, store: Store, *, board: PhaseBoard | None = None,
        served: Mapping[str, PolicyEntry] | None = None, spool: Spool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._context, self._store, self._spool = context, store, spool
        self._served = served or {}
        self._board = board or NoBoard()
        self._policies: dict[str, Policy] = {}
        codes = context.blinding.codes
        self._guards = {
            name: CheckpointGuard(entry.checkpoints, shown=codes[name])
            for name in codes
            if (entry := context.entry(name)).checkpoints
        }

    def check(self, *, is_replacement: bool = False) -> None:
        """Open everything and check that it fits together, before the first episode.

        `is_replacement`: this was open before in another process, so a server that is away is waited for.
        """
        context = self._context
        self._board.enter(WorkerPhase.START)
        check_host_fits(context.plan, self._open_host())
        for name, code in context.blinding.codes.items():
            if name in self._guards:
                self._guards[name].check()
            if is_replacement:
                self._await_policy(name)
            try:
                self._open_policy(name)
            except RobotrialsError:
                raise
            except Exception as error:
                raise InputError(f'policy {code} could not be opened: {error}') from error

    def run(self, slot: Slot, attempt: int) -> Finished:
        """Run one slot and store its episode."""
        if slot.policy in self._guards:
            self._board.enter(WorkerPhase.START)
            self._guards[slot.policy].check()
        rollout = self._rollout(slot)
        episode, fault = self._context.finished(slot, attempt, rollout)
        self._board.enter(WorkerPhase.STORE)
        target = self._store if self._spool is None else self._spool.store_of(slot)
        self._context.commit(target, episode, fault=fault, trajectory=rollout.trajectory, files=rollout.media)
        is_poisoned = False
        if fault is not None:
            is_poisoned = fault.kind is FaultKind.POLICY_HANG
            self._renew(slot.policy if fault.kind.is_the_policys else None)
        self._board.enter(WorkerPhase.IDLE)
        return Finished(slot.number, attempt, episode.outcome, is_poisoned)

    def _rollout(self, slot: Slot) -> Rollout:
        context = self._context
        self._board.enter(WorkerPhase.START)
        try:
            host = self._open_host()
        except Exception as error:
            return rollout_of_fault(crash(FaultKind.HOST_CRASH, error, step=0).fault)
        self._await_policy(slot.policy)
        try:
            policy = self._open_policy(slot.policy)
        except Exception as error:
            return rollout_of_fault(policy_fault(error, step=0).fault)
        seed = derived_seed(context.blinding.key, 'policy', context.planned(slot).episode_id)  # of every attempt
        execute = context.entry(slot.policy).execute
        return self._run(context.plan, slot, host, policy, seed=seed, execute=execute, board=self._board)

    def _open_host(self) -> Host:
        if self._host is None:
            self._host = open_host(self._context.plan.host)
            self._host.limit_calls(self._context.plan.watchdog.host_s)
            if (facts := self._host.protocol()) is not None:
                self._state_protocol(facts)
        return self._host

    def _state_protocol(self, facts: ProtocolFacts) -> None:
        """From here on episodes name a provenance that says what the host states of itself."""
        if not self._context.provenance_id:
            return
        known = self._store.provenance(self._context.provenance_id)
        stated = dataclasses.replace(
            known,
            simulator=facts.simulator or known.simulator,
            initial_states=facts.initial_states or known.initial_states,
            success_parsing=facts.success_predicate or known.success_parsing,
            environment_id=facts.benchmark,
            packages={**known.packages, **facts.packages},
            render_flags={**known.render_flags, **facts.render_flags},
            protocol=facts.stated(),
        )
        self._context = dataclasses.replace(self._context, provenance_id=self._store.write_provenance(stated))

    def _open_policy(self, name: str) -> Policy:
        if name not in self._policies:
            plan, entry, code = self._context.plan, self._context.entry(name), self._context.blinding.codes[name]
            policy = open_policy(self._served.get(name, entry))
            check_policy_fits(plan, self._open_host(), policy, name=name, shown=code, entry=entry)
            self._policies[name] = policy
        return self._policies[name]

    def _await_policy(self, name: str) -> None:
        """Wait for a server that was there and is away, as long as the plan gives to loading.

        An episode begins when its policy can be asked: otherwise every slot would use up its attempts within seconds.
        """
        patience_s = self._context.plan.watchdog.start_s
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._open_policy(name)
                return
            except RigError:
                if time.monotonic() > deadline:
                    code = self._context.blinding.codes[name]
                    raise SetupError(
                        f'policy {code}: its server was lost and did not answer again within {patience_s:g} s '
                        '(watchdog.start_s); start it, and run the same command again to resume'
                    ) from None
            except Exception:
                return  # a fault of its own, which is found and named when the episode opens it
            self._board.enter(WorkerPhase.IDLE)
            time.sleep(AWAIT_PAUSE_S)
            self._board.enter(WorkerPhase.START)

    def _renew(self, policy: str | None) -> None:
        """Let go of what a fault came from; it is opened anew for the next episode."""
        if policy is not None:
            _close(self._policies.pop(policy, None))
        else:
            super().close()

    def close(self) -> None:
        for policy in self._policies.values():
            _close(policy)
        self._policies = {}
        super().close()


def _close(thing: object) -> None:
    if isinstance(thing, (Host, ClosablePolicy)):
        try:
            thing.close()
        except Exception:
            return  # it is being thrown away, and what it did is on record


def rollout_of_fault(fault: Fault) -> Rollout:
    """What came of an episode that a fault ended before its first step."""
    return Rollout(
        outcome=None, fault=fault, n_steps=0, duration_s=0.0, report=HostReport(), trajectory=None, started_at=None
    )


def setup_of(slot: Slot) -> Setup:
    """What host and policy are told of a slot."""
    cell = slot.cell
    name, parameters = draw_entry(cell.condition, seed=slot.seed, instruction=cell.task.instruction)
    return Setup(
        task=cell.task.name,
        seed=slot.seed,
        instruction=cell.task.instruction,
        stratum=cell.stratum.name,
        condition=name,
        condition_parameters=parameters,
        instance=slot.instance,
        labels=slot.labels,
        items=cell.items,
    )
