"""Twenty-five files as labs bring them on a first evening, invented without looking at the importer.

Each builder writes its file (or folder) and says which counts it holds, worked out by hand or from the list it was
written from. Where a file leaves something open that nobody may guess, the printed command has to hold `remedy`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Counts = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class LabFile:
    """What a file holds: successes and episodes by policy; and words of the remedy where one is needed."""

    name: str
    write: Callable[[Path], Path]
    counts: Counts
    tasks: int = 1
    remedy: str | None = None
    invalid: Mapping[str, int] = field(default_factory=dict)


def _text(name: str, text: str, encoding: str = 'utf-8') -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_text(text, encoding=encoding)
        return path

    return write


def _pattern(successes: int, episodes: int) -> list[bool]:
    """Successes spread over the episodes, so that no run of them looks like order."""
    return [(place + 1) * successes // episodes > place * successes // episodes for place in range(episodes)]


def _rates_with_counts() -> str:
    rows = [
        ('SmolVLA', 'fold towel', '65.0', 20),
        ('SmolVLA', 'pour rice', '30.0', 20),
        ('GR00T N1.5', 'fold towel', '80.0', 20),
    ]
    rows.append(('GR00T N1.5', 'pour rice', '55.0', 20))
    return 'Model,Skill,SR (%),# rollouts\n' + ''.join(f'{m},{t},{r},{n}\n' for m, t, r, n in rows)


RATES_ONLY = """\
,pick mug,open drawer,stack bowls,avg
ACT,45%,60%,25%,43.3%
Diffusion Policy,55%,70%,40%,55.0%
pi0-FAST,80%,85%,60%,75.0%
"""

FRACTIONS_IN_ROWS = """\
Method\tPick carrot\tPut spoon on towel\tStack cubes\tTotal
Octo-base\t4/24\t8/24\t1/24\t13/72
OpenVLA-7B\t10/24\t12/24\t3/24\t25/72
CogACT\t17/24\t18/24\t6/24\t41/72
"""

TITLE_AND_UNITS = """\
Real-robot evaluation, week 23 (Franka #2)
operator: jk;;;;
;;;;
Policy;Object;Trial;Success;Time to success [s]
pi05;banana;1;1;12,4
pi05;banana;2;0;
pi05;banana;3;1;10,9
pi05;can;1;1;9,75
pi05;can;2;1;14,0
pi05;can;3;0;
baseline;banana;1;0;
baseline;banana;2;0;
baseline;banana;3;1;22,1
baseline;can;1;1;19,3
baseline;can;2;0;
baseline;can;3;0;
"""

GERMAN = """\
Strategie;Aufgabe;Versuch;Erfolg;Dauer (s)
Diffusion;Becher greifen;1;ja;11,2
Diffusion;Becher greifen;2;nein;30,0
Diffusion;Becher greifen;3;ja;14,8
Diffusion;Schublade öffnen;1;nein;30,0
Diffusion;Schublade öffnen;2;ja;20,5
Diffusion;Schublade öffnen;3;ja;17,1
ACT;Becher greifen;1;nein;30,0
ACT;Becher greifen;2;nein;30,0
ACT;Becher greifen;3;ja;19,9
ACT;Schublade öffnen;1;nein;30,0
ACT;Schublade öffnen;2;nein;30,0
ACT;Schublade öffnen;3;ja;25,4
"""

MARKS = """\
policy\ttask\tT1\tT2\tT3\tT4\tT5\tT6\tT7\tT8\tnotes
RDT-1B\tplug in\t✅\t❌\t✅\t✅\t❌\t✅\t✅\t✅\t
RDT-1B\thang cup\t❌\t❌\t✅\t❌\t✅\t✅\t❌\t✅\tlight flickered
ACT\tplug in\t❌\t❌\t✅\t❌\t❌\t❌\t✅\t❌\t
ACT\thang cup\t❌\t✅\t❌\t❌\t❌\t❌\t❌\t✅\t
"""

MARKDOWN_REPORT = """\
# Eval 2026-03-11

Setup: WidowX, two cameras. **20 rollouts each.**

| Checkpoint        | Put corn in pot | Flip pot upright | Avg. time (s) |
|:------------------|:---------------:|-----------------:|---------------|
| bridge-act-80k    | 9/20            | 6/20             | 14.2          |
| bridge-openvla    | 13/20           | **12/20**        | 18.9          |

Notes: operator changed after lunch.
"""

LATEX = r"""
\begin{table}[t]
\centering
\caption{Success on the real robot.}
\begin{tabular}{lccc}
\toprule
Method & Spoon on towel & Carrot on plate & Eggplant in basket \\
\midrule
RT-1-X~\cite{rtx} & 0/24 & 1/24 & 0/24 \\
Octo-Small & 11/24 & 2/24 & 10/24 \\
\textbf{Ours} & \textbf{15/24} & \underline{9/24} & \textbf{19/24} \\
\bottomrule
\end{tabular}
\end{table}
"""

YAML_CARD = """\
benchmark: kitchen-real
date: 2026-02-02
results:
  pi0:
    wipe_table: {success: 14, trials: 15}
    load_dishwasher: {success: 6, trials: 15}
  openvla-oft:
    wipe_table: {success: 11, trials: 15}
    load_dishwasher: {success: 7, trials: 15}
"""

WANDB = """\
"Name","State","Notes","User","Tags","Created","Runtime","Sweep","seed","policy.type","eval/avg_sum_reward","eval/n_episodes","eval/pc_success"
"act_aloha_insertion","finished","-","mk","","2026-01-04T10:12:33.000Z","8123","","1000","act","61.2","50","34"
"dp_aloha_insertion","finished","-","mk","","2026-01-05T09:00:01.000Z","9450","","1000","diffusion","40.1","50","22"
"smolvla_aloha_insertion","crashed","-","mk","","2026-01-05T19:00:01.000Z","120","","1000","smolvla","","",""
"smolvla_aloha_insertion","finished","-","mk","","2026-01-06T08:30:11.000Z","15333","","1000","smolvla","88.8","50","58"
"""

MLFLOW = """\
Start Time,Duration,Run ID,Name,Source Type,Source Name,User,Status,checkpoint,suite,eval_episodes,success_rate,return
2026-05-02 11:02:10,1.2h,9f3a0c,bold-fox-12,LOCAL,eval.py,lena,FINISHED,act-100k,metaworld-ml10,40,0.525,311.2
2026-05-02 13:40:55,1.1h,77b1de,calm-owl-3,LOCAL,eval.py,lena,FINISHED,tdmpc2-5M,metaworld-ml10,40,0.7,402.8
"""

NEAR_NAMES = """\
policy,task,trial,success
pi0,Towel Folding,1,1
pi0,Towel folding,2,1
Pi0,Towel Folding,3,0
pi0 ,Towel Folding,4,1
pi0,Cup Stacking,1,1
pi0,Cup Stacking,2,0
openvla,Towel Folding,1,0
openvla,Towel folding,2,0
OpenVLA,Towel Folding,3,1
openvla,Towel Folding,4,0
openvla,cup stacking,1,0
openvla,Cup Stacking,2,1
"""

NOT_ALL_RAN = """\
run_id,model,scene,result,steps,comment
1,hpt,kitchen,success,211,
2,hpt,kitchen,fail,400,
3,hpt,kitchen,N/A,,gripper cable came loose
4,hpt,kitchen,success,187,
5,hpt,office,success,160,
6,hpt,office,,,
7,hpt,office,fail,400,
8,octo,kitchen,fail,400,
9,octo,kitchen,fail,400,
10,octo,kitchen,success,305,
,,,,,
11,octo,kitchen,n/a,,e-stop by operator
12,octo,office,fail,400,
13,octo,office,success,222,
14,octo,office,fail,400,
"""


def _item_rows() -> tuple[str, Counts]:
    """A row per item in the bin, three bins each; a bin's success is a matter of rule, items are counted."""
    plan = {'grasp-net': [(5, 6), (6, 6), (4, 6)], 'pi0-bin': [(6, 6), (5, 6), (6, 6)]}
    lines = ['date,policy,episode,item_no,item,placed,t_end_s']
    for policy, bins in plan.items():
        for number, (placed, items) in enumerate(bins, start=1):
            lines += [
                f'2026-04-0{number},{policy},{number},{item},obj{item},{int(item <= placed)},{item * 7.5}'
                for item in range(1, items + 1)
            ]
    return '\n'.join(lines) + '\n', {p: (sum(a == b for a, b in bins), len(bins)) for p, bins in plan.items()}


def _seed_columns() -> str:
    """0/1 for each start, a column per policy: the same seeds for all."""
    act, dp, vla = _pattern(9, 24), _pattern(14, 24), _pattern(19, 24)
    lines = ['env,seed,act,diffusion,smolvla']
    lines += [f'{"push-t" if s < 12 else "lift"},{1000 + s},{act[s]:d},{dp[s]:d},{vla[s]:d}' for s in range(24)]
    return '\n'.join(lines) + '\n'


def _two_level_header() -> str:
    """What pandas writes for a frame with two column levels: policy over measure."""
    lines = ['policy,pi0,pi0,gr00t,gr00t', 'metric,success,time_s,success,time_s', 'trial,,,,']
    pi0, groot = _pattern(8, 12), _pattern(4, 12)
    lines += [
        f'{t},{pi0[t]},{11.5 + t if pi0[t] else 40.0},{groot[t]},{15.25 + t if groot[t] else 40.0}' for t in range(12)
    ]
    return '\n'.join(lines) + '\n'


def _nested_lists() -> str:
    return json.dumps(
        {
            'act': {'lift': _pattern(7, 10), 'can': _pattern(3, 10)},
            'bc-rnn': {'lift': _pattern(5, 10), 'can': _pattern(1, 10)},
        },
        indent=1,
    )


def _arena_lines() -> str:
    lines = []
    for job, successes in (('gr00t_n16__pick_apple', 13), ('pi05__pick_apple', 9)):
        for index, success in enumerate(_pattern(successes, 16)):
            episode = {
                'job_name': job,
                'rebuild_idx': 0,
                'global_episode_index': index,
                'episode_in_env': index // 4,
                'env_id': index % 4,
            }
            episode |= {
                'seed': 42,
                'success': None if index == 15 else success,
                'episode_length': 120 + index,
                'language_instruction': 'pick the apple',
            }
            lines.append(
                json.dumps(
                    episode | {'task_description': 'apple to plate', 'timestamp': f'2026-06-01T10:{index:02d}:00'}
                )
            )
    return '\n'.join(lines) + '\n'


def _rlds_like() -> str:
    """Episodes with steps, as someone dumps an RLDS data set to JSON."""
    episodes = []
    for policy, successes in (('octo-ft', 6), ('rt1x', 3)):
        for number, success in enumerate(_pattern(successes, 9)):
            steps = [
                {
                    'is_first': t == 0,
                    'is_last': t == 4,
                    'is_terminal': t == 4,
                    'reward': float(t == 4 and success),
                    'action': [0.1, 0.0],
                }
                for t in range(5)
            ]
            metadata = {'policy': policy, 'task': 'close fridge', 'success': success, 'episode_id': number}
            episodes.append({'episode_metadata': metadata, 'steps': steps})
    return json.dumps({'episodes': episodes})


def _inspect_robots(folder: Path) -> Path:
    logs = folder / 'logs'
    logs.mkdir()
    for policy, successes in (('scripted', 7), ('noop', 2)):
        outcomes = _pattern(successes, 8)
        samples = []
        for scene in range(4):
            epochs = [{'success': float(outcomes[scene * 2 + e])} for e in range(2)]
            reasons = ['success' if e['success'] else 'max_steps' for e in epochs]
            sample = {
                'scene_id': f's{scene}',
                'instruction': 'reach the cube',
                'scene_metadata': {},
                'status': 'success',
                'error': None,
            }
            sample |= {
                'reduced': {'success': sum(e['success'] for e in epochs) / 2},
                'epochs': epochs,
                'termination_reasons': reasons,
            }
            empty: dict[str, object] = {
                'judgement_sources': [None, None],
                'operator_judgements': [None, None],
                'operator_messages': [[], []],
            }
            samples.append(
                sample
                | empty
                | {'operator_notes': [None, None], 'policy_transcripts': [[], []], 'trial_metadata': [{}, {}]}
            )
        header = {
            'created': '2026-05-05T10:00:00',
            'task': 'cubepick-reach',
            'policy': policy,
            'policy_checkpoint': None,
            'policy_config': {},
        }
        header |= {
            'embodiment': 'cubepick',
            'embodiment_info': {'capabilities': [], 'control_hz': 10.0, 'is_simulated': True},
            'grader': 'success',
        }
        header |= {
            'environment_id': 'cubepick',
            'environment_revision': '1',
            'git_commit': None,
            'grader_config': {},
            'seed': 3,
        }
        header |= {'inspect_robots_version': '0.60.0', 'max_seconds': None, 'max_steps': 50}
        results = {'metrics': {'success': successes / 8}, 'total_scenes': 4, 'total_trials': 8, 'errored_trials': 0}
        stats = {
            'started_at': '2026-05-05T10:00:00',
            'completed_at': '2026-05-05T10:00:09',
            'duration_s': 9.0,
            'total_steps': 300,
        }
        log = {
            'version': 1,
            'status': 'success',
            'error': None,
            'eval': header,
            'results': results,
            'samples': samples,
            'stats': stats,
        }
        (logs / f'2026-05-05_{policy}.json').write_text(json.dumps(log, indent=1))
    return logs


def _excel_merged(folder: Path) -> Path:
    """A title over the table, the policies' names merged over two columns each, a blank line, an average below."""
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = 'Eval'
    rows: list[list[object]] = [
        ['Dual-arm evaluation, spring'],
        [],
        ['Task', 'pi0', None, 'HPT', None],
        [None, 'success', 'trials', 'success', 'trials'],
    ]
    rows += [['hand over', 12, 16, 7, 16], ['fold shirt', 8, 16, 3, 16], ['open jar', 14, 16, 9, 16], []]
    rows += [['Average', 11.3, 16, 6.3, 16]]
    for row in rows:
        sheet.append(row)
    sheet.merge_cells('A1:E1')
    sheet.merge_cells('B3:C3')
    sheet.merge_cells('D3:E3')
    path = folder / 'eval spring.xlsx'
    book.save(path)
    return path


def _excel_sheets(folder: Path) -> Path:
    """A sheet per policy, none of which has a column for it."""
    import openpyxl

    book = openpyxl.Workbook()
    assert book.active is not None
    book.remove(book.active)
    for policy, successes in (('pi0', 11), ('ACT', 6)):
        sheet = book.create_sheet(policy)
        sheet.append(['Trial', 'Task', 'Success?', 'Duration (s)'])
        for number, success in enumerate(_pattern(successes, 15), start=1):
            sheet.append([number, 'insert peg', 'Yes' if success else 'No', 12.5 + number if success else 60])
    path = folder / 'per_policy.xlsx'
    book.save(path)
    return path


def _folder_of_csv(folder: Path) -> Path:
    """A file per policy, named by it."""
    runs = folder / 'eval_may'
    runs.mkdir()
    for policy, successes in (('act_chunk100', 8), ('diffusion_unet', 12)):
        lines = ['trial,success,steps,failure_mode']
        for number, success in enumerate(_pattern(successes, 20)):
            lines.append(f'{number},{success},{150 + number if success else 300},{"" if success else "missed grasp"}')
        (runs / f'{policy}.csv').write_text('\n'.join(lines) + '\n')
    return runs


def _utf16() -> str:
    lines = ['Policy\tTask\tRollout\tOutcome\tTime (s)']
    for policy, successes in (('π0', 9), ('π0.5', 13)):
        lines += [
            f'{policy}\tbus table\t{n}\t{"Succeeded" if s else "Failed"}\t{21.5 + n if s else 90.0}'
            for n, s in enumerate(_pattern(successes, 15))
        ]
    return '\r\n'.join(lines) + '\r\n'


def _checkpoint_lines() -> str:
    lines = []
    for checkpoint, successes in (('/runs/act/step_50000', 5), ('/runs/act/step_100000', 11)):
        for seed, success in enumerate(_pattern(successes, 14)):
            lines.append(
                json.dumps(
                    {
                        'ckpt': checkpoint,
                        'env': 'PnPCounterToCab',
                        'seed': seed,
                        'is_success': success,
                        'episode_length': 220 + seed,
                    }
                )
            )
    return '\n'.join(lines) + '\n'


_ITEMS, _ITEM_COUNTS = _item_rows()

LAB_FILES = (
    LabFile(
        'rates_with_counts', _text('week12.csv', _rates_with_counts()), {'SmolVLA': (19, 40), 'GR00T N1.5': (27, 40)}, 2
    ),
    LabFile(
        'rates_only',
        _text('table2.csv', RATES_ONLY),
        {'ACT': (26, 60), 'Diffusion Policy': (33, 60), 'pi0-FAST': (45, 60)},
        3,
        '--set trials=20',
    ),
    LabFile(
        'fractions',
        _text('simpler.tsv', FRACTIONS_IN_ROWS),
        {'Octo-base': (13, 72), 'OpenVLA-7B': (25, 72), 'CogACT': (41, 72)},
        3,
    ),
    LabFile('title_and_units', _text('franka_wk23.csv', TITLE_AND_UNITS), {'pi05': (4, 6), 'baseline': (2, 6)}, 2),
    LabFile('german', _text('auswertung.csv', GERMAN, 'cp1252'), {'Diffusion': (4, 6), 'ACT': (2, 6)}, 2),
    LabFile('marks', _text('sheet.tsv', MARKS), {'RDT-1B': (10, 16), 'ACT': (4, 16)}, 2),
    LabFile('markdown', _text('eval.md', MARKDOWN_REPORT), {'bridge-act-80k': (15, 40), 'bridge-openvla': (25, 40)}, 2),
    LabFile('latex', _text('table.tex', LATEX), {'RT-1-X': (1, 72), 'Octo-Small': (23, 72), 'Ours': (43, 72)}, 3),
    LabFile('yaml', _text('results.yaml', YAML_CARD), {'pi0': (20, 30), 'openvla-oft': (18, 30)}, 2),
    LabFile(
        'wandb',
        _text('wandb_export_2026-01-07.csv', WANDB),
        {'act': (17, 50), 'diffusion': (11, 50), 'smolvla': (29, 50)},
        1,
        '--blank drop',
    ),
    LabFile('mlflow', _text('runs.csv', MLFLOW), {'act-100k': (21, 40), 'tdmpc2-5M': (28, 40)}),
    LabFile('near_names', _text('both.csv', NEAR_NAMES), {'pi0': (4, 6), 'openvla': (2, 6)}, 2, '--answer names=join'),
    LabFile(
        'not_all_ran',
        _text('log.csv', NOT_ALL_RAN),
        {'hpt': (3, 5), 'octo': (2, 6)},
        2,
        '--blank invalid',
        {'hpt': 2, 'octo': 1},
    ),
    LabFile('item_rows', _text('bins.csv', _ITEMS), _ITEM_COUNTS, 1, '--group-by policy,episode'),
    LabFile(
        'seed_columns',
        _text('by_seed.csv', _seed_columns()),
        {'act': (9, 24), 'diffusion': (14, 24), 'smolvla': (19, 24)},
        2,
    ),
    LabFile('two_level_header', _text('pivot.csv', _two_level_header()), {'pi0': (8, 12), 'gr00t': (4, 12)}),
    LabFile('nested_lists', _text('successes.json', _nested_lists()), {'act': (10, 20), 'bc-rnn': (6, 20)}, 2),
    LabFile(
        'arena',
        _text('episodes.jsonl', _arena_lines()),
        {'gr00t_n16__pick_apple': (12, 15), 'pi05__pick_apple': (8, 15)},
        1,
        '--blank invalid',
        {'gr00t_n16__pick_apple': 1, 'pi05__pick_apple': 1},
    ),
    LabFile('rlds_like', _text('dump.json', _rlds_like()), {'octo-ft': (6, 9), 'rt1x': (3, 9)}),
    LabFile('inspect_robots', _inspect_robots, {'scripted': (7, 8), 'noop': (2, 8)}),
    LabFile('excel_merged', _excel_merged, {'pi0': (34, 48), 'HPT': (19, 48)}, 3),
    LabFile('excel_sheets', _excel_sheets, {'pi0': (11, 15), 'ACT': (6, 15)}),
    LabFile('folder_of_csv', _folder_of_csv, {'act_chunk100': (8, 20), 'diffusion_unet': (12, 20)}),
    LabFile('utf16', _text('unicode text.txt', _utf16(), 'utf-16'), {'π0': (9, 15), 'π0.5': (13, 15)}),
    LabFile(
        'checkpoints',
        _text('rollouts.jsonl', _checkpoint_lines()),
        {'/runs/act/step_50000': (5, 14), '/runs/act/step_100000': (11, 14)},
    ),
)
