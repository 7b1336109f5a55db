"""Runs inside the environment ``grpc``: carries bytes to a gRPC server and back, and reads none of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class GrpcService:
    """One channel. A failed call is reported by its status; the other side decides what that means."""

    def open(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        import grpc

        most = int(asked['max_bytes'])
        options = [('grpc.max_receive_message_length', most), ('grpc.max_send_message_length', most)]
        self._channel = grpc.insecure_channel(str(asked['target']), options=options)
        try:
            grpc.channel_ready_future(self._channel).result(timeout=float(asked['timeout_s']))
        except grpc.FutureTimeoutError:
            return {'status': 'UNAVAILABLE', 'details': f'no answer within {asked["timeout_s"]:g} s'}
        return {'status': 'OK'}

    def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """One call with one message, or with several as a stream."""
        import grpc

        messages = [bytes(message) for message in asked['messages']]
        try:
            if asked['is_stream']:
                call = self._channel.stream_unary(str(asked['method']))
                answer = call(iter(messages), timeout=float(asked['timeout_s']))
            else:
                answer = self._channel.unary_unary(str(asked['method']))(messages[0], timeout=float(asked['timeout_s']))
        except grpc.RpcError as error:
            return {'status': error.code().name, 'details': str(error.details())[:2000]}
        return {'status': 'OK', 'answer': answer}
