from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import robotrials
from tests.formats.build import make_rlds
from tests.measure.actions.server import Bucket, serve

from robotrials.errors import InputError, SetupError
from robotrials.formats.dataset import open_dataset
from robotrials.formats.fetch import RemoteFile, fetch_dataset, list_files


def bucket_of(root: Path, **options: bool) -> Bucket:
    files = {f'robotics/push/0.1.0/{p.name}': p.read_bytes() for p in root.iterdir()}
    return Bucket({**files, 'robotics/push/0.0.9/features.json': b'{}'}, **options)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_rlds(tmp_path / 'source', train=3, test=2)


@pytest.mark.parametrize('with_md5', [True, False])
def test_a_fetched_dataset_is_the_dataset(tmp_path: Path, source: Path, with_md5: bool) -> None:
    seen: dict[str, int] = {}
    announced: list[RemoteFile] = []

    def progress(file: RemoteFile, size: int) -> None:
        seen[file.name] = seen.get(file.name, 0) + size

    with serve(bucket_of(source, with_md5=with_md5)) as host:
        folder = fetch_dataset('push', tmp_path / 'data', host=host, started=announced.extend, progress=progress)
    assert folder == tmp_path / 'data' / 'push' / '0.1.0'
    assert open_dataset(folder).splits == {'train': 3, 'test': 2}
    assert seen == {f.name: f.size for f in announced}


def test_listing_follows_pages(source: Path) -> None:
    with serve(bucket_of(source)) as host:
        assert len(list(list_files('robotics/push/0.1.0/', host=host))) == 4


def test_a_broken_download_goes_on_where_it_stopped(tmp_path: Path, source: Path) -> None:
    bucket = bucket_of(source)
    shard = 'robotics/push/0.1.0/push-train.tfrecord-00000-of-00001'
    bucket.cut[shard] = 1000
    with serve(bucket) as host:
        with pytest.raises((SetupError, InputError), match='run the command again'):
            fetch_dataset('push', tmp_path, host=host)
        part = tmp_path / 'push' / '0.1.0' / 'push-train.tfrecord-00000-of-00001.part'
        assert part.stat().st_size == 1000
        bucket.ranges.clear()
        fetch_dataset('push', tmp_path, host=host)
    assert 'bytes=1000-' in bucket.ranges
    assert not part.exists()
    assert (part.with_suffix('')).read_bytes() == bucket.files[shard]


def test_a_server_that_ignores_ranges_starts_over(tmp_path: Path, source: Path) -> None:
    bucket = bucket_of(source)
    bucket.ignore_range = True
    part = tmp_path / 'push' / '0.1.0' / 'features.json.part'
    part.parent.mkdir(parents=True)
    part.write_bytes(b'{}')
    with serve(bucket) as host:
        fetch_dataset('push', tmp_path, host=host)
    assert (tmp_path / 'push' / '0.1.0' / 'features.json').read_bytes() == (source / 'features.json').read_bytes()


def test_what_is_here_and_fits_is_not_fetched_again(tmp_path: Path, source: Path) -> None:
    bucket = bucket_of(source)
    with serve(bucket) as host:
        fetch_dataset('push', tmp_path, host=host)
        bucket.ranges.clear()
        fetch_dataset('push', tmp_path, host=host)
    assert bucket.ranges == []


def test_a_wrong_checksum_removes_the_file_and_says_so(tmp_path: Path, source: Path) -> None:
    bucket = bucket_of(source)
    with serve(bucket) as host:
        files = list(list_files('robotics/push/0.1.0/', host=host))
        target = next(f for f in files if f.name.endswith('features.json'))
        bucket.files[target.name] = bucket.files[target.name][:-1] + b'!'
        from robotrials.formats.fetch import fetch_file

        with pytest.raises(InputError, match='does not fit its checksum'):
            fetch_file(target, tmp_path / 'features.json', host=host)
    assert list(tmp_path.glob('features*')) == []


def test_an_unknown_dataset_is_said_in_one_line(tmp_path: Path, source: Path) -> None:
    with serve(bucket_of(source)) as host, pytest.raises(InputError, match="no dataset 'pull' in the bucket"):
        fetch_dataset('pull', tmp_path, host=host)


def test_without_a_network_it_says_so_in_one_line(tmp_path: Path) -> None:
    told = robotrials('actions', 'fetch', 'jaco_play', '--to', tmp_path, '--host', 'http://127.0.0.1:9', code=2)
    assert 'Error: no connection to 127.0.0.1:9' in told
    assert 'fetching needs a network' in told


def test_the_command_fetches_one_split(tmp_path: Path, source: Path) -> None:
    with serve(bucket_of(source)) as host:
        robotrials('actions', 'fetch', 'push', '--to', tmp_path, '--host', host, '--split', 'test')
    names = {p.name for p in (tmp_path / 'push' / '0.1.0').iterdir()}
    assert names == {'dataset_info.json', 'features.json', 'push-test.tfrecord-00000-of-00001'}
