"""Arguments in the wrong place, and the wrong kind of block, are clear errors."""

import asyncio

import pytest
from driving import ONE, with_plugin

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting, SlaqError


@with_plugin(ONE)
async def test_a_name_is_no_client(c, s, plugin, a):
    for ask in (slaq.status, slaq.history, slaq.ended):
        with pytest.raises(InvalidSetting, match=r"must be a distributed.Client, not 'a'"):
            ask("a")


def test_blocks_and_progress_of_a_synchronous_client(local_client):
    local_client.register_plugin(slaq.SlaqPlugin(epoch="1h"))
    with pytest.raises(InvalidSetting, match="names of jobs, not <Client"):
        slaq.progress(local_client)

    async def enter():
        async with slaq.search("grid", client=local_client):
            raise AssertionError

    with pytest.raises(SlaqError, match="use 'with'"):
        asyncio.run(asyncio.wait_for(enter(), 20))


@with_plugin(ONE)
async def test_what_cannot_be_called_hears_no_alerts(c, s, plugin, a):
    for handler in (5, "x", c):
        with pytest.raises(InvalidSetting, match="takes a function that is called with an alert"):
            slaq.alerts(handler, client=c)
