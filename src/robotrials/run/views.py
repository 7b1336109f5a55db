"""Keeping RGB-D of an episode: at its start and its end, and in between at a stated rate."""

from __future__ import annotations

from collections.abc import Mapping

from robotrials.errors import InputError
from robotrials.record.rgbd import END, FOLDER, KNOWN, START, moment_name, pack_views
from robotrials.run.host import Host
from robotrials.run.plan import RecordingOptions, TrialPlan

MOST_MOMENTS = 4096
TIME_SLACK_S = 1e-9


def no_views(host: str) -> InputError:
    """That the analysis asks for a success which no episode of this host could have."""
    return InputError(
        f"analysis.success is 'reconstruction', and host {host} keeps no calibrated RGB-D views: a score from cameras "
        'also needs the colours and sizes of the objects, where they are to end, and what stands fixed, as '
        "known_scene() gives them; say success = 'host'"
    )


def check_viewing(plan: TrialPlan, host: Host) -> None:
    """Raise InputError if success is the cameras' alone, and the host has none, or none as it was opened."""
    if plan.is_judged_by_cameras and not host.has_views:
        raise no_views(host.spec.name)


class ViewKeeper:
    """Asks a host that has cameras for its views when they are due; of any other host it keeps nothing."""

    def __init__(self, host: Host, recording: RecordingOptions) -> None:
        self._host = host if recording.rgbd != 'off' and host.has_views else None
        rate = recording.rgbd
        self._period_s = 1.0 / rate if isinstance(rate, float) else None
        self._next_s = 0.0
        self._files: dict[str, bytes] = {}

    @property
    def is_timed(self) -> bool:
        """Whether moments between start and end are asked for."""
        return self._host is not None and self._period_s is not None

    @property
    def media(self) -> Mapping[str, bytes]:
        return self._files

    def begin(self) -> None:
        """Right after the reset."""
        if self._host is not None:
            self._files[KNOWN] = self._host.known_scene().as_json().encode()
            self._take(START)
            self._next_s = self._period_s or 0.0

    def step(self, t_s: float) -> None:
        """After every control step; takes a moment when one is due."""
        if self._period_s is None or t_s + TIME_SLACK_S < self._next_s:
            return
        if len(self._files) >= MOST_MOMENTS:
            raise InputError(
                f'more than {MOST_MOMENTS} moments of RGB-D in one episode; ask for a lower recording.rgbd'
            )
        self._next_s += self._period_s
        self._take(moment_name(t_s))

    def end(self) -> None:
        """When the episode is over; what cannot be taken then leaves a note, and the episode stays as judged."""
        if self._host is None or START not in self._files:
            return
        try:
            self._take(END)
        except Exception as error:
            self._files[f'{FOLDER}/end.txt'] = f'{type(error).__name__}: {error}'.encode()

    def _take(self, name: str) -> None:
        assert self._host is not None
        self._files[name] = pack_views(self._host.views(is_over=name == END))
