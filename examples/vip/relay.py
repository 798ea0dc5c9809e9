"""Passes connections to LISTEN on to SERVER: both are ADDRESS:PORT."""

import asyncio
import sys


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # a connection that was reset
    finally:
        writer.close()


async def main(listen, server):
    async def relayed(reader, writer):
        try:
            there = await asyncio.open_connection(*server.rsplit(":", 1))
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    async with await asyncio.start_server(relayed, *listen.rsplit(":", 1)) as serving:
        await serving.serve_forever()


try:
    asyncio.run(main(*sys.argv[1:]))
except KeyboardInterrupt:
    pass
