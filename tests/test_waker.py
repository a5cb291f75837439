"""The waker: events are set on their loops, whatever becomes of other loops."""

from __future__ import annotations

import asyncio
import threading

from octavo.waker import Waker


async def all_set(events: list[asyncio.Event]) -> None:
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in events)), 5)


def test_events_are_set_on_their_loops() -> None:
    waker = Waker()
    ready = threading.Barrier(3)
    events: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}

    async def wait() -> None:
        mine = [asyncio.Event(), asyncio.Event()]
        events[asyncio.get_running_loop()] = mine
        ready.wait()
        await all_set(mine)

    threads = [threading.Thread(target=asyncio.run, args=(wait(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait()
    waker.wake(events)
    for thread in threads:
        thread.join()
    waker.close()
    assert all(event.is_set() for each in events.values() for event in each)


def test_a_closed_loop_keeps_nobody_from_being_woken() -> None:
    async def main() -> None:
        waker, event = Waker(), asyncio.Event()
        closed = asyncio.new_event_loop()
        closed.close()
        waker.wake({closed: [asyncio.Event()], asyncio.get_running_loop(): [event]})
        await all_set([event])
        waker.close()

    asyncio.run(main())


def test_who_was_to_be_woken_before_it_closes_is_woken() -> None:
    async def main() -> None:
        waker, events = Waker(), [asyncio.Event() for _ in range(100)]
        for event in events:
            waker.wake({asyncio.get_running_loop(): [event]})
        waker.close()
        await all_set(events)

    asyncio.run(main())
