"""`robotrials actions convert`: actions of a file in another convention."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from robotrials.formats.space import FloatArray


def convert(
    actions: Annotated[Path, typer.Argument(help='Actions, one row per timestep: .npy or .csv.', show_default=False)],
    out: Annotated[Path, typer.Option('--output', '-o', help='Where to write them: .npy or .csv.', show_default=False)],
    step: Annotated[
        list[str] | None,
        typer.Option('--step', '-s', help='A conversion, such as ternary-gripper:6; repeat it for more.'),
    ] = None,
    statistics: Annotated[
        str, typer.Option('--statistics', help='The file holds statistics: write them for openpi, openvla or lerobot.')
    ] = '',
    space: Annotated[Path | None, typer.Option(help='A JSON file that describes the action space.')] = None,
    space_out: Annotated[Path | None, typer.Option(help='Write the converted space here.')] = None,
    inverse: Annotated[bool, typer.Option('--inverse', help='Undo the steps instead, if they lose nothing.')] = False,
) -> None:
    """Convert actions between conventions: grippers, ranges, axis orders, dimensions.

    Steps: binary-gripper:I[:AT], ternary-gripper:I, continuous-gripper:I[:LOW:HIGH], torque-gripper:I:LOW:HIGH,
    unnormalize:FILE, normalize:FILE, reorder:ORDER[:SIGNS], select:INDICES, drop-terminate. FILE holds statistics as
    openpi, OpenVLA or LeRobot write them.

    Example: `robotrials actions convert said.npy --step unnormalize:stats.json --step binary-gripper:6 -o out.npy`
    """
    import json

    from robotrials.errors import InputError
    from robotrials.formats.space import read_space
    from robotrials.measure.actions.conversion_spec import parse_conversions

    if statistics:
        from robotrials.formats.norm_stats import read_norm_stats, spell

        if step or inverse or space is not None:
            raise InputError('--statistics writes a file of statistics anew; leave out --step, --inverse and --space')
        out.write_text(json.dumps(spell(read_norm_stats(actions), statistics), indent=2) + '\n', encoding='utf-8')
        typer.echo(f'wrote {out}', err=True)
        return
    if not step:
        raise InputError('wanted --step CONVERSION, or --statistics openpi|openvla|lerobot for a file of statistics')
    known = read_space(space) if space is not None else None
    if space_out is not None and known is None:
        raise InputError('--space-out needs the space to start from: --space FILE')
    chain = parse_conversions(step, space=known)
    if inverse:
        turned = chain.inverse
        if turned is None:
            raise InputError(f'{", ".join(step)}: a step loses numbers and cannot be undone')
        write_actions(out, turned(read_actions(actions)))
    else:
        write_actions(out, chain(read_actions(actions)))
    if known is not None and space_out is not None:
        space_out.write_text(json.dumps(chain.space(known).as_json(), indent=1) + '\n', encoding='utf-8')
    typer.echo(f'wrote {out}', err=True)


def read_actions(path: Path) -> FloatArray:
    """Actions (T, D) of a .npy or .csv file; a first line of names is passed over."""
    import numpy as np

    from robotrials.errors import InputError

    try:
        if path.suffix == '.npy':
            values = np.load(path, allow_pickle=False)
        elif path.suffix == '.csv':
            first = path.read_text(encoding='utf-8').partition('\n')[0]
            has_names = any(c.isalpha() and c not in 'eEnNaAiIfF' for c in first)
            values = np.loadtxt(path, delimiter=',', skiprows=int(has_names), ndmin=2)
        else:
            raise InputError(f'{path}: wanted .npy or .csv')
        values = np.asarray(values, dtype=np.float64)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f'{path}: not readable as actions ({error})') from error
    if values.ndim != 2 or not values.size:
        raise InputError(f'{path}: actions of shape {values.shape}, wanted (T, D)')
    return values


def write_actions(path: Path, actions: FloatArray) -> None:
    import numpy as np

    from robotrials.errors import InputError

    if path.suffix == '.npy':
        np.save(path, actions)
    elif path.suffix == '.csv':
        np.savetxt(path, actions, delimiter=',', fmt='%.17g')
    else:
        raise InputError(f'{path}: wanted .npy or .csv')
