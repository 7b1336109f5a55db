"""The HTTP client: TLS, proxies, and deadlines over a whole answer."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from robotrials.errors import InputError, NoAnswer, RigError, SetupError
from robotrials.wire.request import HttpLink, proxy_of

CERTIFICATE = Path(__file__).with_name('localhost.pem')  # and its key; made for these tests
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def listening(serve: Serve) -> Iterator[int]:
    """One connection at a time is handed to `serve`; gives the port."""
    with socket.create_server(('127.0.0.1', 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)


def head(connection: socket.socket) -> str:
    """A request up to its empty line."""
    text = b''
    while not text.endswith(b'\r\n\r\n'):
        piece = connection.recv(1)
        if not piece:
            break
        text += piece
    return text.decode()


def over_tls(connection: socket.socket, heads: list[str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with context.wrap_socket(connection, server_side=True) as secured:
        heads.append(head(secured))
        secured.sendall(ANSWER)


def test_a_server_under_tls_is_asked_once_its_certificate_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[str] = []
    with listening(lambda connection: over_tls(connection, heads)) as port:
        link = HttpLink(f'https://localhost:{port}')
        with pytest.raises(RigError, match='certificate'):
            link.get('/x', timeout_s=PATIENCE_S)
        monkeypatch.setenv('SSL_CERT_FILE', str(CERTIFICATE))
        assert link.get('/x', timeout_s=PATIENCE_S).body == b'ok'
        link.close()
    assert heads[-1].startswith('GET /x HTTP/1.1')


def test_a_proxy_is_given_whole_addresses_and_its_own_password() -> None:
    heads: list[str] = []

    def serve(connection: socket.socket) -> None:
        heads.append(head(connection))
        connection.sendall(ANSWER)

    with listening(serve) as port:
        link = HttpLink('http://models.lab:8000/v1', proxy=f'http://me:s%40d@127.0.0.1:{port}')
        assert link.get('/models', timeout_s=PATIENCE_S).text() == 'ok'
        link.close()
    assert heads[0].startswith('GET http://models.lab:8000/v1/models HTTP/1.1\r\nHost: models.lab:8000\r\n')
    assert f'Proxy-Authorization: Basic {base64.b64encode(b"me:s@d").decode()}' in heads[0]


def test_a_server_under_tls_is_reached_through_a_proxy_that_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[str] = []

    def serve(connection: socket.socket) -> None:
        heads.append(head(connection))
        connection.sendall(b'HTTP/1.1 200 Connection established\r\n\r\n')
        over_tls(connection, heads)

    monkeypatch.setenv('SSL_CERT_FILE', str(CERTIFICATE))
    with listening(serve) as port:
        link = HttpLink(
            'https://localhost', headers={'Authorization': 'Bearer k'}, proxy=f'http://me:p@127.0.0.1:{port}'
        )
        assert link.get('/x', timeout_s=PATIENCE_S).text() == 'ok'
        link.close()
    to_proxy, to_server = heads
    assert to_proxy.startswith('CONNECT localhost:443 HTTP/1.1\r\n')
    assert 'Bearer' not in to_proxy
    assert to_server.startswith('GET /x HTTP/1.1\r\n')
    assert 'Proxy-Authorization' not in to_server


@pytest.mark.parametrize(
    ('answer', 'reason'),
    [(b'HTTP/1.1 407 Who are you\r\n\r\n', '407 Who are you'), (b'\x05\x00', 'does not speak HTTP')],
)
def test_a_proxy_that_refuses_is_named(answer: bytes, reason: str) -> None:
    def serve(connection: socket.socket) -> None:
        head(connection)
        connection.sendall(answer)

    with listening(serve) as port:
        link = HttpLink('https://localhost', proxy=f'127.0.0.1:{port}')
        with pytest.raises(RigError, match=reason):
            link.get('/x', timeout_s=PATIENCE_S)


def test_the_proxy_is_the_one_that_this_machine_is_set_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('https_proxy', 'http://proxy.lab:3128')
    monkeypatch.setenv('no_proxy', 'localhost,.lab')
    assert proxy_of('https://api.example.com/v1') == 'http://proxy.lab:3128'
    assert proxy_of('https://models.lab/v1') == proxy_of('https://localhost:8000') == ''
    with pytest.raises(SetupError, match='wanted http://HOST:PORT'):
        HttpLink('https://x', proxy='socks5://proxy.lab')


@pytest.mark.parametrize('proxy', ['http://proxy.lab:abc', 'proxy.lab:99999', 'http://[::1'])
def test_a_proxy_that_is_no_address_is_a_matter_of_set_up(proxy: str) -> None:
    with pytest.raises(SetupError, match='the proxy is not an address'):
        HttpLink('https://x', proxy=proxy)


def test_an_address_that_is_none_has_no_proxy() -> None:
    with pytest.raises(InputError, match='Invalid IPv6 URL'):
        proxy_of('http://[::1/v1')


def test_a_key_that_http_cannot_send_is_not_said() -> None:
    with listening(lambda connection: None) as port:
        link = HttpLink(f'http://127.0.0.1:{port}', headers={'Authorization': 'Bearer kłucz'})
        with pytest.raises(RigError, match='a letter that HTTP cannot send') as refused:
            link.get('/x', timeout_s=PATIENCE_S)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize('length', [b'-5', b'zz'])
def test_a_chunk_without_a_length_breaks_the_connection(length: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        head(connection)
        connection.sendall(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n' + length + b'\r\nabc\r\n')

    with listening(serve) as port:
        link = HttpLink(f'http://127.0.0.1:{port}')
        with pytest.raises(RigError, match='the connection broke before the answer was whole'):
            link.get('/x', timeout_s=PATIENCE_S)


def test_an_answer_that_trickles_ends_at_its_deadline() -> None:
    """A time-out for every byte would wait for ever."""

    def serve(connection: socket.socket) -> None:
        head(connection)
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n')
        while True:
            connection.sendall(b'x')
            waiting.wait(0.05)

    waiting = threading.Event()
    with listening(serve) as port:
        link = HttpLink(f'http://127.0.0.1:{port}')
        with pytest.raises(NoAnswer, match=r'no answer within 0\.5 s'):
            link.get('/x', timeout_s=0.5)
