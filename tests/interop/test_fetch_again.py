"""An incremental fetch (KIP-227) byte by byte, as the Java consumer sends it after a seek to where it was."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace

from ottla.wire import fetch
from ottla.wire.apis import ApiKey
from ottla.wire.fetch_messages import FetchPartition, FetchRequest, FetchResponse
from ottla.wire.headers import read_response_header, request_frame
from support.cluster import HOST, ProcessCluster, receive
from support.wire import FETCH_VERSION, values, write


def test_records_that_a_consumer_dropped_are_sent_again_though_it_names_nothing(
    cluster: ProcessCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    write(cluster, topic, "x")
    with socket.create_connection((HOST, cluster.nodes[cluster.leader(topic)].port), 5) as leader:

        def answer(request: FetchRequest) -> FetchResponse:
            body = fetch.write_request(FETCH_VERSION, request)
            leader.sendall(request_frame(ApiKey.FETCH, FETCH_VERSION, 1, "test", body))
            size = int.from_bytes(receive(leader, 4), "big")
            frame = memoryview(bytearray(receive(leader, size)))
            _, start = read_response_header(ApiKey.FETCH, FETCH_VERSION, frame)
            return fetch.read_response(FETCH_VERSION, frame, start)

        asked = FetchPartition(
            topic=topic,
            topic_id=None,
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=0,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            max_bytes=1 << 20,
        )
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20)
        first = answer(replace(request, session_epoch=0, partitions=[asked]))
        assert [values(each) for each in first.partitions] == [["x"]]
        for epoch in (1, 2):
            again = replace(request, session_id=first.session_id, session_epoch=epoch)
            assert [values(each) for each in answer(again).partitions] == [["x"]]
