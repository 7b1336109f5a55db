"""Training mixes on a host: policies trained on the demonstrations of one task, of some and of all, tested on each.

Start states of the test are those of a trial with another seed than the demonstrations', and are shared by all mixes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from robotrials.declaration import read_toml
from robotrials.errors import InputError
from robotrials.policies.probe import (
    Demonstrations,
    DemonstrationWriter,
    ProbeOptions,
    collect_demonstrations,
    read_demonstrations,
    read_options,
    train_probe,
)
from robotrials.policies.probe.option import TaskInput
from robotrials.run import run_trial
from robotrials.run.plan import HostEntry, PolicyEntry
from robotrials.study.datasource import ExpertEntry
from robotrials.study.evaluate import work_folder
from robotrials.study.start import grid_outcomes, grid_plan, start_setups
from robotrials.verdict.audit.run_score import MixScore, TrainingMix, mixes, write_mix

RESULT = 'mix.json'
DATA_SHIFT = 7_000_003  # between the seeds of the test and of the demonstrations
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixPlan:
    """`tasks` are all tasks; `blocks` those that are mixed without the rest (RADAR's Mix Blocks leaves Spatial out)."""

    tasks: tuple[str, ...] = ('single_block', 'two_block', 'three_block', 'spatial')
    blocks: tuple[str, ...] = ('single_block', 'two_block', 'three_block')
    demonstrations: int = 100  # of each task
    episodes: int = 24  # test start states of each task
    padding_steps: int = 10
    time_cap_s: float = 30.0
    seed: int = 1
    host: HostEntry = field(
        default_factory=lambda: HostEntry(
            'tabletop', {'cameras': ['front', 'wrist'], 'image_size': [64, 64], 'shadows': False}
        )
    )
    expert: ExpertEntry = field(default_factory=ExpertEntry)
    probe: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.tasks)) < len(self.tasks) or len(self.tasks) < 2:
            raise InputError(f'tasks are {list(self.tasks)}, wanted at least two, each once')
        if self.demonstrations < 1 or self.episodes < 1:
            raise InputError('demonstrations and episodes are wanted >= 1')
        mixes(self.tasks, self.blocks)
        if 'task_input' in self.probe:
            raise InputError(
                '[probe] task_input: mixes are trained without the task, to be tried on others; leave it out'
            )
        self.probe_options()

    def probe_options(self) -> ProbeOptions:
        return read_options({'seed': self.seed, **self.probe}, where='[probe]')


def read_mix_plan(path: Path | str) -> MixPlan:
    """The plan in a TOML file."""
    return read_toml(MixPlan, path)


def run_mix(plan: MixPlan, folder: Path | str, *, workers: int = 1, tell: Tell | None = None) -> TrainingMix:
    """The whole comparison into `folder`, where it resumes; writes mix.json there. A set of tasks is trained once."""
    with work_folder(folder) as work:
        return _run(plan, work, workers, tell or (lambda text: None))


def _run(plan: MixPlan, work: Path, workers: int, tell: Tell) -> TrainingMix:
    made = mixes(plan.tasks, plan.blocks)
    data = {task: _collected(plan, task, work / 'demonstrations', tell) for task in plan.tasks}
    trained: dict[tuple[str, ...], PolicyEntry] = {}
    for sources in dict.fromkeys(s for by_task in made.values() for s in by_task.values()):
        trained[sources] = _trained(plan, sources, data, work, tell)
    scores = []
    for task in plan.tasks:
        entries = {name: trained[by_task[task]] for name, by_task in made.items()}
        tell(f'{task}: evaluating {len(entries)} mixes')
        store = work / 'evaluation' / task
        run_trial(_evaluation(plan, task, entries), store, workers=workers)
        for name, by_task in made.items():
            outcomes = grid_outcomes(store, name, plan.episodes)
            scores.append(MixScore(mix=name, task=task, trained_on=by_task[task], outcomes=outcomes))
    result = TrainingMix(host=plan.host.use, learner='probe', scores=tuple(scores))
    write_mix(result, work / RESULT)
    return result


def _evaluation(plan: MixPlan, task: str, policies: Mapping[str, PolicyEntry]) -> Any:
    # A probe knows the tasks it was trained on; on another one it is told nothing that it could look up.
    return grid_plan(
        plan.host, policies, task=task, seed=plan.seed, grid=plan.episodes, time_cap_s=plan.time_cap_s,
        title=f'training mix: {task}',
    )  # fmt: skip


def _collected(plan: MixPlan, task: str, folder: Path, tell: Tell) -> Demonstrations:
    folder.mkdir(parents=True, exist_ok=True)
    expert = PolicyEntry(plan.expert.use, plan.expert.options)
    source = grid_plan(
        plan.host, {'expert': expert}, task=task, seed=plan.seed + DATA_SHIFT, grid=plan.demonstrations,
        time_cap_s=plan.time_cap_s,
    )  # fmt: skip
    return collect_demonstrations(
        HostEntry(plan.host.use, {**plan.host.options, **plan.expert.host_options}), expert,
        start_setups(source), folder / task, state_width=plan.expert.state_width,
        padding_steps=plan.padding_steps, noise=plan.expert.noise, seed=plan.seed,
        time_cap_s=plan.time_cap_s, progress=lambda p: tell(f'{task}: {p.kept} demonstrations of {p.of}'),
    )  # fmt: skip


def _trained(
    plan: MixPlan, sources: tuple[str, ...], data: Mapping[str, Demonstrations], work: Path, tell: Tell
) -> PolicyEntry:
    name = '+'.join(sources)
    joined = (
        data[sources[0]]
        if len(sources) == 1
        else join_demonstrations([data[s] for s in sources], work / 'joined' / name)
    )
    # Without the task's number, so that a policy can be tried on a task that it was not trained on.
    options = replace(plan.probe_options(), task_input=TaskInput.NONE)
    trained = train_probe(
        joined, options, work / 'probe' / name,
        progress=lambda p: tell(f'{name}: step {p.step} of {p.steps}, loss {p.training_loss:.4f}'),
    )  # fmt: skip
    return PolicyEntry('probe', {'path': str(trained.checkpoints[-1].folder)})


def join_demonstrations(parts: Sequence[Demonstrations], folder: Path) -> Demonstrations:
    """Several sets as one, episode by episode; start states are left out, since tasks have different objects."""
    source = {'kind': 'joined', 'digests': [part.digest for part in parts]}
    if folder.exists():
        there = read_demonstrations(folder)
        if there.facts.source != source:
            raise InputError(f'{folder}: other demonstrations were joined there; name another folder')
        return there
    facts = parts[0].facts
    for part in parts[1:]:
        if part.facts.action != facts.action or part.facts.control_rate_hz != facts.control_rate_hz:
            raise InputError(f'{part.folder}: another action convention or control rate than {parts[0].folder}')
    folder.parent.mkdir(parents=True, exist_ok=True)
    with DemonstrationWriter(
        folder, action=facts.action, control_rate_hz=facts.control_rate_hz, source=source,
        state_layout=facts.state_layout, tasks=tuple(dict.fromkeys(t for p in parts for t in p.facts.tasks)),
    ) as writer:  # fmt: skip
        for part in parts:
            for number, episode in enumerate(part.facts.episodes):
                first, last = part.starts[number : number + 2]
                writer.append(
                    episode, images={c: v[first:last] for c, v in part.images.items()}, state=part.state[first:last],
                    action=part.action[first:last],
                )  # fmt: skip
        return writer.finish()
